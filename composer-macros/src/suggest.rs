//! "Did you mean": the known word that an unknown one was probably meant to be.

/// Words of other tools, and what they are called here.
const ELSEWHERE: [(&str, &str); 21] = [
    ("retries", "retry"),
    ("task_queue", "queue"),
    ("start_to_close_timeout", "timeout"),
    ("attempt_timeout", "timeout"),
    ("schedule_to_close_timeout", "total_timeout"),
    ("deadline", "total_timeout"),
    ("retry_policy", "retry"),
    ("backoff", "retry"),
    ("sync", "blocking"),
    ("id", "name"),
    ("rename", "name"),
    ("attempts", "max_attempts"),
    ("maximum_attempts", "max_attempts"),
    ("max_retries", "max_attempts"),
    ("times", "max_attempts"),
    ("initial", "first"),
    ("initial_interval", "first"),
    ("multiplier", "factor"),
    ("backoff_coefficient", "factor"),
    ("max_delay", "max"),
    ("when", "on"),
];

/// The message for a key that `place` does not know.
pub(crate) fn unknown(place: &str, key: &str, known: &[&str]) -> String {
    match meant(key, known) {
        Some(known) => format!("`{place}` knows no `{key}`: did you mean `{known}`?"),
        None => {
            let known: Vec<_> = known.iter().map(|key| format!("`{key}`")).collect();
            format!("`{place}` knows no `{key}`: it knows {}", known.join(", "))
        }
    }
}

/// The known word that is meant, if there is a likely one.
pub(crate) fn meant<'a>(word: &str, known: &[&'a str]) -> Option<&'a str> {
    let elsewhere = ELSEWHERE.iter().find(|(theirs, _)| *theirs == word).map(|(_, ours)| *ours);
    if let Some(ours) = known.iter().find(|known| Some(**known) == elsewhere) {
        return Some(ours);
    }
    let (near, distance) =
        known.iter().map(|known| (known, distance(word, known))).min_by_key(|(_, d)| *d)?;
    // A third of the word may be wrong: `retires`, `time_out`, `max_attempt`, but not `on` for `in_order`.
    (distance <= near.len().div_ceil(3)).then_some(near)
}

/// How many letters must be changed, added, removed or swapped with their neighbour.
fn distance(a: &str, b: &str) -> usize {
    let (a, b): (Vec<char>, Vec<char>) = (a.chars().collect(), b.chars().collect());
    let mut rows = vec![vec![0; b.len() + 1]; a.len() + 1];
    for i in 0..=a.len() {
        for j in 0..=b.len() {
            rows[i][j] = if i == 0 || j == 0 {
                i + j
            } else {
                let same = usize::from(a[i - 1] != b[j - 1]);
                let swap = i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1];
                let swapped = if swap { rows[i - 2][j - 2] + 1 } else { usize::MAX };
                (rows[i - 1][j] + 1).min(rows[i][j - 1] + 1).min(rows[i - 1][j - 1] + same).min(swapped)
            };
        }
    }
    rows[a.len()][b.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn near_misses_and_words_of_other_tools_are_understood() {
        let keys = ["retry", "timeout", "total_timeout", "name", "queue", "blocking", "max_attempts", "on"];
        for (word, wanted) in [
            ("retyr", Some("retry")),
            ("time_out", Some("timeout")),
            ("total_time_out", Some("total_timeout")),
            ("max_attempt", Some("max_attempts")),
            ("maxatempts", Some("max_attempts")),
            ("task_queue", Some("queue")),
            ("no", Some("on")),
            ("colour", None),
            ("x", None),
        ] {
            assert_eq!(meant(word, &keys), wanted, "{word}");
        }
    }
}
