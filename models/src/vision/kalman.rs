//! A Kalman filter with constant velocity for one coordinate. A box has four of them, which do not influence
//! each other: one filter over all eight numbers with diagonal noise would compute the same.

/// Position, velocity and how sure they are.
#[derive(Clone, Copy, Debug)]
pub(super) struct Coordinate {
    pub(super) position: f32,
    velocity: f32,
    /// Covariance: position, position with velocity, velocity.
    covariance: [f32; 3],
}

impl Coordinate {
    /// First seen at `position`, give or take `deviation`; moving at most about `speed` a second.
    pub(super) fn new(position: f32, deviation: f32, speed: f32) -> Self {
        let covariance = [deviation * deviation, 0.0, speed * speed];
        Coordinate { position, velocity: 0.0, covariance }
    }

    /// Where it will be `seconds` later, when its velocity changes by about `unrest` within a second.
    pub(super) fn predict(&mut self, seconds: f32, unrest: f32) {
        let [p, c, v] = self.covariance;
        let (t, q) = (seconds, unrest * unrest);
        self.position += self.velocity * t;
        self.covariance = [
            p + 2.0 * t * c + t * t * v + q * t * t * t / 3.0,
            c + t * v + q * t * t / 2.0,
            v + q * t,
        ];
    }

    /// Seen at `position`, give or take `deviation`.
    pub(super) fn correct(&mut self, position: f32, deviation: f32) {
        let [p, c, v] = self.covariance;
        let total = p + deviation * deviation;
        if total <= 0.0 {
            self.position = position;
            return;
        }
        let (gain, pull) = (p / total, c / total);
        let off = position - self.position;
        self.position += gain * off;
        self.velocity += pull * off;
        self.covariance = [p - gain * p, c - gain * c, v - pull * c];
    }

    /// No longer moving, as far as is known.
    pub(super) fn halt(&mut self) {
        self.velocity = 0.0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_steady_motion_is_learned_and_carried_on() {
        let mut x = Coordinate::new(0.0, 0.01, 0.5);
        for step in 1..=10 {
            x.predict(0.2, 0.05);
            x.correct(step as f32 * 0.02, 0.01);
        }
        x.predict(1.0, 0.05);
        assert!((x.position - 0.3).abs() < 0.02, "{x:?}");
    }

    #[test]
    fn certainty_falls_with_time_and_rises_with_sight() {
        let mut x = Coordinate::new(0.0, 0.01, 0.5);
        let before = x.covariance[0];
        x.predict(0.5, 0.1);
        let later = x.covariance[0];
        assert!(later > before);
        x.correct(0.1, 0.01);
        assert!(x.covariance[0] < later && x.covariance[0] > 0.0);
    }
}
