//! How a call is carried out: retries, timeouts, the task queue.
//!
//! Options are not part of a step's identity: a new build may change any of them while runs are open. A policy that
//! cannot work is refused where it is set, with the setting and the value in words; the arithmetic never overflows,
//! never goes above the cap (jitter included) and never turns into "at once" by accident.

use std::time::Duration;

use crate::error::{Failure, FailureKind};

/// When a failed attempt is followed by another one, and when it is not.
///
/// The delay before attempt `n + 1` is `first * factor^(n - 1)`, capped at `max`, of which the part given by `jitter`
/// is drawn at random: with 1.0 (the default, "full jitter") anything from nothing to the whole.
///
/// ```
/// use std::time::Duration;
/// use composer_sdk::options::Retry;
///
/// const PATIENT: Retry = Retry::DEFAULT.max_attempts(50).max(Duration::from_secs(600));
/// assert!(PATIENT.check().is_ok());
/// assert!(Retry::DEFAULT.max_attempts(0).check().is_err());
/// ```
#[derive(Debug, Clone, Copy, PartialEq)]
#[non_exhaustive]
pub struct Retry {
    /// How many attempts there are in all, from 1.
    pub max_attempts: u32,
    /// The delay after the first failed attempt.
    pub first: Duration,
    /// What each delay is multiplied by to make the next.
    pub factor: f64,
    /// The longest delay.
    pub max: Duration,
    /// Which part of a delay is random, from 0.0 to 1.0.
    pub jitter: f64,
}

/// Why a retry policy cannot be used.
#[derive(Debug, Clone, Copy, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum InvalidRetry {
    /// No attempt at all would be made.
    #[error("retry: `max_attempts` is 0, so not even the first attempt would be made; use 1 for no retries")]
    NoAttempts,
    /// Delays would shrink, or the factor is not a number.
    #[error("retry: `factor` is {0}; use a number from 1.0 on")]
    Factor(f64),
    /// The random part is not a part.
    #[error("retry: `jitter` is {0}; use a number from 0.0 (none) to 1.0 (the whole delay)")]
    Jitter(f64),
    /// The cap is below the first delay.
    #[error("retry: `max` ({max:?}) is below `first` ({first:?})")]
    MaxBelowFirst {
        /// The delay after the first failed attempt.
        first: Duration,
        /// The longest delay.
        max: Duration,
    },
}

impl Retry {
    /// 20 attempts; 200 ms, doubled up to 60 s; full jitter.
    pub const DEFAULT: Self = Self {
        max_attempts: 20,
        first: Duration::from_millis(200),
        factor: 2.0,
        max: Duration::from_secs(60),
        jitter: 1.0,
    };

    /// One attempt and no other.
    pub const NONE: Self = Self { max_attempts: 1, ..Self::DEFAULT };

    /// The same policy with that many attempts in all.
    pub const fn max_attempts(self, max_attempts: u32) -> Self {
        Self { max_attempts, ..self }
    }

    /// The same policy with that delay after the first failed attempt.
    pub const fn first(self, first: Duration) -> Self {
        Self { first, ..self }
    }

    /// The same policy with delays that grow by that factor.
    pub const fn factor(self, factor: f64) -> Self {
        Self { factor, ..self }
    }

    /// The same policy with that longest delay.
    pub const fn max(self, max: Duration) -> Self {
        Self { max, ..self }
    }

    /// The same policy with that part of each delay drawn at random.
    pub const fn jitter(self, jitter: f64) -> Self {
        Self { jitter, ..self }
    }

    /// The policy, if it can work.
    ///
    /// # Errors
    /// Which setting cannot be used, and what to write instead.
    pub const fn check(self) -> Result<Self, InvalidRetry> {
        if self.max_attempts == 0 {
            Err(InvalidRetry::NoAttempts)
        } else if !(self.factor >= 1.0 && self.factor.is_finite()) {
            Err(InvalidRetry::Factor(self.factor))
        } else if !(self.jitter >= 0.0 && self.jitter <= 1.0) {
            Err(InvalidRetry::Jitter(self.jitter))
        } else if self.max.as_nanos() < self.first.as_nanos() {
            Err(InvalidRetry::MaxBelowFirst { first: self.first, max: self.max })
        } else {
            Ok(self)
        }
    }

    /// The policy of an attribute, checked by the compiler.
    ///
    /// # Panics
    /// When it cannot work: a compile error, with the setting in words.
    #[doc(hidden)]
    pub const fn checked(self) -> Self {
        match self.check() {
            Ok(retry) => retry,
            Err(InvalidRetry::NoAttempts) => panic!("`max_attempts` must be 1 or more"),
            Err(InvalidRetry::Factor(_)) => panic!("`factor` must be 1.0 or more"),
            Err(InvalidRetry::Jitter(_)) => panic!("`jitter` must be from 0.0 to 1.0"),
            Err(InvalidRetry::MaxBelowFirst { .. }) => panic!("`max` must not be below `first`"),
        }
    }

    /// How long to wait after that many failed attempts; `random` is drawn from 0.0 to 1.0 by the caller.
    pub fn delay(&self, failed_attempts: u32, random: f64) -> Duration {
        let cap = self.max.as_secs_f64();
        let steps = i32::try_from(failed_attempts.saturating_sub(1)).unwrap_or(i32::MAX);
        // `powi` overflows to infinity, which the cap brings back; 0 * infinity is NaN, and no delay is wanted then.
        let whole = (self.first.as_secs_f64() * self.factor.powi(steps)).min(cap);
        let whole = if self.first.is_zero() { 0.0 } else { whole };
        let random = if random.is_finite() { random.clamp(0.0, 1.0) } else { 1.0 };
        let drawn = whole * (1.0 - self.jitter + self.jitter * random);
        Duration::try_from_secs_f64(drawn).unwrap_or(self.max).min(self.max)
    }
}

impl Default for Retry {
    fn default() -> Self {
        Self::DEFAULT
    }
}

impl From<InvalidRetry> for Failure {
    fn from(why: InvalidRetry) -> Self {
        Failure::new(FailureKind::Refused, why)
    }
}

/// How an activity is carried out.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct ActivityOptions {
    /// What follows a failed attempt.
    pub retry: Retry,
    /// How long one attempt may take.
    pub timeout: Option<Duration>,
    /// How long all attempts and the delays between them may take.
    pub total_timeout: Option<Duration>,
    /// The task queue whose workers carry it out; without one, the worker that holds the run does.
    pub queue: Option<String>,
}

impl ActivityOptions {
    /// How long one attempt may take unless the activity or the call says otherwise.
    pub const DEFAULT_TIMEOUT: Duration = Duration::from_secs(600);

    /// The defaults: [`Retry::DEFAULT`], ten minutes an attempt, no total timeout, no queue.
    pub const DEFAULT: Self = Self {
        retry: Retry::DEFAULT,
        timeout: Some(Self::DEFAULT_TIMEOUT),
        total_timeout: None,
        queue: None,
    };
}

impl Default for ActivityOptions {
    fn default() -> Self {
        Self::DEFAULT
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    fn check(retry: Retry, failed: u32, random: f64, wanted: Duration) {
        assert_eq!(retry.delay(failed, random), wanted, "{retry:?} after {failed}, random {random}");
    }

    #[test]
    fn r16_delays_double_up_to_the_cap_and_stay_there() {
        let retry = Retry::DEFAULT.first(SECOND).jitter(0.0);
        check(retry, 1, 0.3, SECOND);
        check(retry, 2, 0.3, 2 * SECOND);
        check(retry, 6, 0.3, 32 * SECOND);
        for failed in [7, 100, 200, 5_000, u32::MAX] {
            check(retry, failed, 0.3, 60 * SECOND);
        }
    }

    #[test]
    fn r16_jitter_stays_in_its_range_and_below_the_cap() {
        let retry = Retry::DEFAULT.first(SECOND);
        for failed in 1..300 {
            for random in [0.0, 0.5, 0.999_999, 1.0] {
                let half = retry.jitter(0.5).delay(failed, random);
                let whole = retry.jitter(0.0).delay(failed, random);
                assert!(whole / 2 <= half && half <= whole, "{half:?} of {whole:?}");
                assert!(retry.delay(failed, random) <= retry.max);
            }
        }
        check(retry, 3, 0.0, Duration::ZERO);
        check(retry, 3, 0.5, 2 * SECOND);
    }

    #[test]
    fn r16_edges_neither_panic_nor_overflow() {
        let huge = Retry::DEFAULT.first(Duration::MAX).max(Duration::MAX).jitter(0.0);
        check(huge, u32::MAX, 1.0, Duration::MAX);
        check(Retry::DEFAULT.first(Duration::ZERO), u32::MAX, 1.0, Duration::ZERO);
        check(Retry::DEFAULT.first(SECOND).factor(1.0), 40, 1.0, SECOND);
        check(Retry::DEFAULT.first(SECOND), 1, f64::NAN, SECOND);
        check(Retry::DEFAULT.first(SECOND), 0, 1.0, SECOND);
    }

    #[test]
    fn r16_a_policy_that_cannot_work_is_refused_in_words() {
        for (retry, word) in [
            (Retry::DEFAULT.max_attempts(0), "max_attempts"),
            (Retry::DEFAULT.factor(0.0), "factor"),
            (Retry::DEFAULT.factor(f64::NAN), "factor"),
            (Retry::DEFAULT.factor(f64::INFINITY), "factor"),
            (Retry::DEFAULT.jitter(1.5), "jitter"),
            (Retry::DEFAULT.jitter(f64::NAN), "jitter"),
            (Retry::DEFAULT.max(Duration::from_millis(1)), "below"),
        ] {
            let why = retry.check().unwrap_err().to_string();
            assert!(why.contains(word), "{why}");
        }
        assert!(Retry::NONE.check().is_ok());
    }
}
