//! Turns pictures upright as their display matrix asks, while their rows are packed. Pure.

/// How stored pixels map to the upright picture: one of the eight quarter turns and mirrorings.
/// A pixel at (x, y) is shown at (a·x + c·y, b·x + d·y), moved into the picture.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Orientation {
    a: i8,
    b: i8,
    c: i8,
    d: i8,
}

impl Orientation {
    /// As stored.
    pub(super) const UPRIGHT: Orientation = Orientation { a: 1, b: 0, c: 0, d: 1 };

    /// From the 36 bytes of a display matrix (ISO 14496-12 `tkhd`: a b u c d v x y w, 16.16 fixed point, in the
    /// machine's byte order). None for turns that are no multiple of 90 degrees and for broken matrices.
    pub(super) fn from_matrix(bytes: &[u8]) -> Option<Self> {
        let mut entries =
            bytes.chunks_exact(4).map(|b| i32::from_ne_bytes([b[0], b[1], b[2], b[3]]));
        let [a, b, _, c, d] = std::array::from_fn(|_| entries.next().unwrap_or(0));
        // Scaling in the matrix is ignored: only the direction of each axis counts.
        let unit = |major: i32, minor: i32| {
            let clear = i64::from(major).abs() > 16 * i64::from(minor).abs();
            clear.then_some(major.signum() as i8)
        };
        match (unit(a, b), unit(d, c), unit(b, a), unit(c, d)) {
            (Some(a), Some(d), _, _) => Some(Orientation { a, b: 0, c: 0, d }),
            (_, _, Some(b), Some(c)) => Some(Orientation { a: 0, b, c, d: 0 }),
            _ => None,
        }
    }

    /// Size of the upright picture.
    pub(super) fn size(self, width: u32, height: u32) -> (u32, u32) {
        if self.a == 0 { (height, width) } else { (width, height) }
    }

    /// Copies an RGB24 picture with `stride` bytes a row into `out` (packed rows, upright).
    pub(super) fn copy(self, picture: Padded<'_>, out: &mut [u8]) {
        let Padded { data, stride, width, height } = picture;
        let (w, h) = (width as usize, height as usize);
        if w == 0 || h == 0 {
            return;
        }
        let rows = data.chunks(stride).take(h);
        if self == Self::UPRIGHT {
            for (row, out) in rows.zip(out.chunks_exact_mut(w * 3)) {
                out.copy_from_slice(&row[..w * 3]);
            }
            return;
        }
        let out_width = self.size(width, height).0 as usize;
        // Steps in `out` for one pixel to the right and one row down.
        let step = |dx: i8, dy: i8| (isize::from(dx) + isize::from(dy) * out_width as isize) * 3;
        let (right, down) = (step(self.a, self.b), step(self.c, self.d));
        let first = |right: isize, n: usize| if right < 0 { -right * (n as isize - 1) } else { 0 };
        let origin = first(right, w) + first(down, h);
        for (y, row) in rows.enumerate() {
            let mut at = origin + down * y as isize;
            for pixel in row[..w * 3].chunks_exact(3) {
                let start = at as usize;
                out[start..start + 3].copy_from_slice(pixel);
                at += right;
            }
        }
    }
}

/// An RGB24 picture whose rows may be longer than its width.
#[derive(Clone, Copy, Debug)]
pub(super) struct Padded<'a> {
    /// At least `stride * (height - 1) + width * 3` bytes.
    pub(super) data: &'a [u8],
    /// Bytes from row to row, at least `width * 3`.
    pub(super) stride: usize,
    pub(super) width: u32,
    pub(super) height: u32,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn matrix(a: i32, b: i32, c: i32, d: i32) -> Vec<u8> {
        let entries = [a << 16, b << 16, 0, c << 16, d << 16, 0, 0, 0, 1 << 30];
        entries.iter().flat_map(|e: &i32| e.to_ne_bytes()).collect()
    }

    /// A picture of 3x2 pixels named 1..6 with a padded row, turned.
    fn turned(a: i32, b: i32, c: i32, d: i32) -> Vec<u8> {
        let stored = [1, 1, 1, 2, 2, 2, 3, 3, 3, 99, 4, 4, 4, 5, 5, 5, 6, 6, 6, 99];
        let mut out = [0; 18];
        let orientation = Orientation::from_matrix(&matrix(a, b, c, d)).unwrap();
        orientation.copy(Padded { data: &stored, stride: 10, width: 3, height: 2 }, &mut out);
        out.chunks(3).map(|p| p[0]).collect()
    }

    #[test]
    fn every_turn_and_mirror() {
        assert_eq!(turned(1, 0, 0, 1), [1, 2, 3, 4, 5, 6]);
        assert_eq!(turned(-1, 0, 0, -1), [6, 5, 4, 3, 2, 1]);
        assert_eq!(turned(0, 1, -1, 0), [4, 1, 5, 2, 6, 3], "90 degrees clockwise");
        assert_eq!(turned(0, -1, 1, 0), [3, 6, 2, 5, 1, 4], "90 degrees counter-clockwise");
        assert_eq!(turned(-1, 0, 0, 1), [3, 2, 1, 6, 5, 4], "mirrored");
        assert_eq!(turned(1, 0, 0, -1), [4, 5, 6, 1, 2, 3], "upside down");
        assert_eq!(turned(0, 1, 1, 0), [1, 4, 2, 5, 3, 6], "transposed");
    }

    #[test]
    fn slanted_or_broken_matrices_are_refused() {
        assert_eq!(Orientation::from_matrix(&matrix(1, 1, -1, 1)), None);
        assert_eq!(Orientation::from_matrix(&matrix(0, 0, 0, 0)), None);
        assert_eq!(Orientation::from_matrix(&[1, 2, 3]), None);
    }

    #[test]
    fn last_row_may_lack_its_padding() {
        let mut out = [0; 6];
        let stored = [1, 1, 1, 0, 2, 2, 2];
        let picture = Padded { data: &stored, stride: 4, width: 1, height: 2 };
        Orientation::UPRIGHT.copy(picture, &mut out);
        assert_eq!(out, [1, 1, 1, 2, 2, 2]);
    }
}
