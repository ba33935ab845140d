//! Numbers that look random, and are the same in each run: what a placement at random may give.

/// SplitMix64 (Steele, Lea and Flood, OOPSLA 2014): one multiplication more than a counter, and
/// good enough to throw streams at targets.
pub struct Random(u64);

impl Random {
    /// Each seed has a sequence of its own.
    pub fn new(seed: u64) -> Random {
        Random(seed)
    }

    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// One of 0 to `n` - 1; 0 if `n` is 0.
    pub fn below(&mut self, n: u32) -> u32 {
        (((self.next() >> 32) * u64::from(n)) >> 32) as u32
    }

    /// A number of the normal distribution around 0 with a standard deviation of 1, and between -6
    /// and 6: a sum of twelve, which needs no function that differs between machines.
    pub fn normal(&mut self) -> f64 {
        let four = |bits: u64| (0..4).map(|i| bits >> (16 * i) & 0xffff).sum::<u64>();
        let sum = four(self.next()) + four(self.next()) + four(self.next());
        // Each part is half a step below the middle of its range.
        (sum + 6) as f64 / 65536.0 - 6.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_spread_and_the_same() {
        let draw = || {
            let mut random = Random::new(7);
            (0..100_000).map(|_| (random.below(480), random.normal())).collect::<Vec<_>>()
        };
        let drawn = draw();
        assert_eq!(drawn, draw());
        let mut hits = [0; 480];
        drawn.iter().for_each(|(target, _)| hits[*target as usize] += 1);
        assert!(hits.iter().all(|hit| (130..300).contains(hit)), "{hits:?}");
        let mean = drawn.iter().map(|(_, z)| z).sum::<f64>() / 1e5;
        let variance = drawn.iter().map(|(_, z)| z * z).sum::<f64>() / 1e5;
        assert!(mean.abs() < 0.02 && (variance - 1.0).abs() < 0.02, "{mean} {variance}");
        assert_eq!(Random::new(1).below(0), 0);
    }
}
