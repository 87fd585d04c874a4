//! The arithmetic of the benches: exact quantiles of few values, slopes, shares. Pure.

/// Measured values, all kept.
#[derive(Clone, Debug, Default)]
pub(super) struct Times(Vec<f64>);

impl Times {
    pub(super) fn add(&mut self, value: f64) {
        self.0.push(value);
    }

    pub(super) fn extend(&mut self, others: &Times) {
        self.0.extend(&others.0);
    }

    pub(super) fn count(&self) -> usize {
        self.0.len()
    }

    /// The smallest value that at least this fraction of all does not exceed; none of none.
    pub(super) fn at(&self, fraction: f64) -> Option<f64> {
        let mut sorted = self.0.clone();
        sorted.sort_by(f64::total_cmp);
        let rank = (fraction * sorted.len() as f64).ceil() as usize;
        sorted.get(rank.saturating_sub(1)).copied()
    }

    pub(super) fn max(&self) -> Option<f64> {
        self.at(1.0)
    }

    pub(super) fn sum(&self) -> f64 {
        self.0.iter().sum()
    }
}

impl FromIterator<f64> for Times {
    fn from_iter<I: IntoIterator<Item = f64>>(values: I) -> Self {
        Times(values.into_iter().collect())
    }
}

/// `part` of `whole`, none of nothing.
pub(super) fn share(part: usize, whole: usize) -> Option<f64> {
    (whole > 0).then(|| part as f64 / whole as f64)
}

/// `a / b`, none when there is no b.
pub(super) fn ratio(a: Option<f64>, b: Option<f64>) -> Option<f64> {
    a.zip(b).filter(|(_, b)| *b > 0.0).map(|(a, b)| a / b)
}

/// Slope of the line through points (x, y) with the least squares; none when all have the same x.
pub(super) fn slope(points: &[(f64, f64)]) -> Option<f64> {
    let count = points.len() as f64;
    let mean = |of: fn(&(f64, f64)) -> f64| points.iter().map(of).sum::<f64>() / count;
    let (x, y) = (mean(|p| p.0), mean(|p| p.1));
    let below: f64 = points.iter().map(|p| (p.0 - x).powi(2)).sum();
    let above: f64 = points.iter().map(|p| (p.0 - x) * (p.1 - y)).sum();
    (below > 0.0).then(|| above / below)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantiles_are_values_that_were_measured() {
        let times: Times = (1..=100).rev().map(f64::from).collect();
        assert_eq!([0.5, 0.99, 1.0, 0.0].map(|q| times.at(q)), [50.0, 99.0, 100.0, 1.0].map(Some));
        let three: Times = [7.0, 5.0, 6.0].into_iter().collect();
        assert_eq!([0.5, 0.99].map(|q| three.at(q)), [Some(6.0), Some(7.0)]);
        assert_eq!((three.max(), three.count(), three.sum()), (Some(7.0), 3, 18.0));
        assert_eq!(Times::default().at(0.5), None);
    }

    #[test]
    fn a_slope_is_found_in_noise_and_none_in_one_point() {
        let exact: Vec<_> = (0..10).map(|i| (f64::from(i), 3.0 + 0.5 * f64::from(i))).collect();
        assert!((slope(&exact).unwrap() - 0.5).abs() < 1e-12);
        let noisy: Vec<_> =
            exact.iter().enumerate().map(|(i, (x, y))| (*x, y + [0.1, -0.1][i % 2])).collect();
        assert!((slope(&noisy).unwrap() - 0.5).abs() < 0.03);
        assert_eq!(slope(&[(1.0, 5.0)]), None);
        assert_eq!(slope(&[]), None);
    }

    #[test]
    fn nothing_has_no_share_and_no_ratio() {
        assert_eq!(share(1, 4), Some(0.25));
        assert_eq!(share(0, 0), None);
        assert_eq!(ratio(Some(3.0), Some(2.0)), Some(1.5));
        assert_eq!(ratio(Some(3.0), Some(0.0)), None);
        assert_eq!(ratio(None, Some(2.0)), None);
    }
}
