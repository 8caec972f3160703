//! Which names break a replay, and what to write instead.
//!
//! A pattern is a path. With `..` before it, whatever stands before is fine: for types and functions that are known by
//! their name alone. With `..` behind it, everything under it is meant. A bare module's functions (`env::var`) are
//! matched without either, since another crate's module may have the same name.

/// Why a name breaks a replay; each has its own replacement.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Why {
    Clock,
    Random,
    Id,
    Task,
    Executor,
    Yield,
    Sleep,
    Timeout,
    Interval,
    Unordered,
    ThreadSleep,
    Thread,
    Files,
    Environment,
    Terminal,
    Process,
    Network,
    Database,
    BlockOn,
}

/// The first pattern that fits decides; `None` is what is harmless among what is not.
const PATHS: &[(Option<Why>, &[&str])] = &[
    (
        Some(Why::Clock),
        &[
            "..::SystemTime::now",
            "..::Instant::now",
            "..::Utc::now",
            "..::Utc::today",
            "..::Local::now",
            "..::Local::today",
            "..::OffsetDateTime::now_utc",
            "..::OffsetDateTime::now_local",
            "..::UtcDateTime::now",
            "..::Zoned::now",
            "jiff::Timestamp::now",
            "uuid::Timestamp::now",
        ],
    ),
    (
        Some(Why::Id),
        &[
            "..::Uuid::new_v4",
            "..::Uuid::new_v7",
            "..::Uuid::now_v1",
            "..::Uuid::now_v6",
            "..::Uuid::now_v7",
            "ulid::Ulid::new",
            "ulid::Ulid::generate",
        ],
    ),
    (None, &["fastrand::Rng::with_seed", "getrandom::Error::.."]),
    (
        Some(Why::Random),
        &[
            "rand::random",
            "rand::random_bool",
            "rand::random_iter",
            "rand::random_range",
            "rand::random_ratio",
            "rand::fill",
            "rand::make_rng",
            "rand::rng",
            "..::thread_rng",
            "..::OsRng",
            "..::SysRng",
            "..::ThreadRng::default",
            "..::from_entropy",
            "..::from_os_rng",
            "fastrand::..",
            "getrandom::..",
            "ring::rand::SystemRandom::new",
        ],
    ),
    (Some(Why::BlockOn), &["..::block_on"]),
    (Some(Why::Yield), &["tokio::task::yield_now", "task::yield_now"]),
    (
        None,
        &[
            "tokio::task::coop::..",
            "tokio::task::unconstrained",
            "tokio::time::Duration::..",
            "tokio::time::error::..",
        ],
    ),
    (
        Some(Why::Timeout),
        &["tokio::time::timeout", "tokio::time::timeout_at", "time::timeout", "time::timeout_at"],
    ),
    (
        Some(Why::Interval),
        &["tokio::time::interval", "tokio::time::interval_at", "time::interval", "time::interval_at"],
    ),
    (
        Some(Why::Sleep),
        &[
            "tokio::time::..",
            "time::sleep",
            "time::sleep_until",
            "async_std::task::sleep",
            "async_io::Timer::..",
            "smol::Timer::..",
            "futures_timer::Delay::..",
        ],
    ),
    (
        Some(Why::Task),
        &[
            "tokio::spawn",
            "tokio::task::..",
            "..::spawn_blocking",
            "..::block_in_place",
            "task::spawn_local",
            "..::JoinSet::new",
            "async_std::task::..",
            "smol::spawn",
            "smol::unblock",
            "std::thread::spawn",
            "std::thread::scope",
            "std::thread::Builder::..",
            "thread::spawn",
            "rayon::spawn",
        ],
    ),
    (Some(Why::Executor), &["tokio::runtime::.."]),
    (Some(Why::ThreadSleep), &["std::thread::sleep", "thread::sleep", "std::thread::sleep_until"]),
    (None, &["std::thread::panicking"]),
    (Some(Why::Thread), &["std::thread::.."]),
    (
        Some(Why::Files),
        &[
            "std::fs::..",
            "tokio::fs::..",
            "async_std::fs::..",
            "fs_err::..",
            "..::File::open",
            "..::File::create",
            "..::File::create_new",
            "..::OpenOptions::new",
            // `fs::read`, `write`, `copy` and `rename` could as well be somebody's activities.
            "fs::canonicalize",
            "fs::create_dir",
            "fs::create_dir_all",
            "fs::metadata",
            "fs::read_dir",
            "fs::read_to_string",
            "fs::remove_dir",
            "fs::remove_dir_all",
            "fs::remove_file",
        ],
    ),
    (None, &["std::env::consts::.."]),
    (
        Some(Why::Environment),
        &[
            "std::env::..",
            "env::args",
            "env::args_os",
            "env::current_dir",
            "env::current_exe",
            "env::remove_var",
            "env::set_var",
            "env::temp_dir",
            "env::var",
            "env::var_os",
            "env::vars",
            "env::vars_os",
            "std::process::id",
        ],
    ),
    (
        Some(Why::Terminal),
        &[
            "std::io::stdin",
            "io::stdin",
            "tokio::io::stdin",
            "tokio::io::stdout",
            "tokio::io::stderr",
            "tokio::signal::..",
        ],
    ),
    (Some(Why::Process), &["std::process::Command::..", "process::Command::new", "tokio::process::.."]),
    (None, &["ureq::Error::..", "ureq::http::.."]),
    (
        Some(Why::Network),
        &[
            "..::TcpListener::bind",
            "..::TcpStream::connect",
            "..::TcpStream::connect_timeout",
            "..::UdpSocket::bind",
            "..::UnixListener::bind",
            "..::UnixStream::connect",
            "tokio::net::..",
            "reqwest::get",
            "reqwest::Client::..",
            "reqwest::ClientBuilder::..",
            "reqwest::blocking::..",
            "ureq::..",
            "hyper::client::..",
            "hyper::Client::..",
            "hyper_util::client::..",
            "isahc::..",
            "tonic::transport::..",
            "composer_sdk::http::..",
        ],
    ),
    (
        Some(Why::Database),
        &[
            "sqlx::query",
            "sqlx::query_as",
            "sqlx::query_as_with",
            "sqlx::query_scalar",
            "sqlx::query_scalar_with",
            "sqlx::query_with",
            "sqlx::raw_sql",
            "..::MySqlPool::connect",
            "..::MySqlPoolOptions::new",
            "..::PgPool::connect",
            "..::PgPoolOptions::new",
            "..::SqlitePool::connect",
            "..::SqlitePoolOptions::new",
            "mongodb::Client::..",
            "redis::Client::..",
            "redis::cmd",
            "rusqlite::Connection::..",
            "tokio_postgres::connect",
        ],
    ),
];

const MACROS: &[(Why, &[&str])] = &[
    (Why::Unordered, &["tokio::select", "futures::select", "futures_util::select"]),
    (
        Why::Database,
        &[
            "sqlx::query",
            "sqlx::query_as",
            "sqlx::query_file",
            "sqlx::query_file_as",
            "sqlx::query_file_scalar",
            "sqlx::query_scalar",
        ],
    ),
    (Why::Id, &["nanoid", "nanoid::nanoid"]),
];

/// Why a path in an expression breaks a replay.
pub(super) fn path(path: &[String]) -> Option<Why> {
    let fits = |patterns: &&[&str]| patterns.iter().any(|pattern| fits(pattern, path));
    PATHS.iter().find(|(_, patterns)| fits(patterns)).and_then(|(why, _)| *why)
}

/// Why a macro breaks a replay.
pub(super) fn macro_call(path: &[String]) -> Option<Why> {
    let fits = |patterns: &&[&str]| patterns.iter().any(|pattern| fits(pattern, path));
    MACROS.iter().find(|(_, patterns)| fits(patterns)).map(|(why, _)| *why)
}

/// Whether a function takes the code that is given to it out of the workflow, and journals its value.
pub(super) fn records(path: &[String]) -> bool {
    let name = path.last().map(String::as_str);
    matches!(name, Some("side_effect" | "try_side_effect"))
}

fn fits(pattern: &str, path: &[String]) -> bool {
    let same = |wanted: &str, path: &[String]| wanted.split("::").eq(path.iter());
    let length = |wanted: &str| wanted.split("::").count();
    if let Some(end) = pattern.strip_prefix("..::") {
        let start = path.len().checked_sub(length(end));
        return start.is_some_and(|start| same(end, &path[start..]));
    }
    if let Some(start) = pattern.strip_suffix("::..") {
        return path.len() > length(start) && same(start, &path[..length(start)]);
    }
    same(pattern, path)
}

impl Why {
    /// What is given to it would not run in the workflow; what that does is no fault of its own.
    pub(super) fn covers_arguments(self) -> bool {
        self == Why::Task
    }

    /// Whether its answer may be of use without deciding anything, as in a line for people.
    pub(super) fn may_be_meant(self) -> bool {
        use Why::{Clock, Environment, Files, Id, Random, Thread};
        matches!(self, Clock | Environment | Files | Id | Random | Thread)
    }

    /// What is wrong with `name`, and what to write instead.
    pub(super) fn message(self, name: &str) -> String {
        let words = match self {
            Why::Clock => {
                "gives another time when the workflow is run again after a crash: write `workflow::now()`"
            }
            Why::Random => {
                "gives something else when the workflow is run again after a crash: write \
                 `workflow::random(\"name\")`"
            }
            Why::Id => {
                "makes another id when the workflow is run again after a crash: write `workflow::uuid()`"
            }
            Why::Task => {
                "starts work that is lost in a crash, and started anew whenever the workflow is run again: use \
                 `join!` or `join_all` for steps at the same time, and an activity for anything else"
            }
            Why::Executor => {
                "runs something beside the workflow, which is lost in a crash: write `.await`, or do it in an activity"
            }
            Why::Yield => "waits for what is not durable: remove it, since steps need no yielding",
            Why::Sleep => {
                "waits in memory, which is lost in a crash: write `sleep` of `composer_sdk::prelude`, which is durable"
            }
            Why::Timeout => {
                "waits in memory, which is lost in a crash: write `select!` with a `sleep` of \
                 `composer_sdk::prelude` as its last branch"
            }
            Why::Interval => {
                "ticks in memory, which is lost in a crash: write a loop with a `sleep` of `composer_sdk::prelude`"
            }
            Why::Unordered => {
                "begins with a random branch, so it may decide otherwise when the workflow is run again after a \
                 crash: write `select!` of `composer_sdk::prelude`, which goes from top to bottom"
            }
            Why::ThreadSleep => {
                "holds up the worker's thread, and is lost in a crash: write `sleep(…).await`, which is durable"
            }
            Why::Thread => {
                "is about this process, and after a crash the workflow is run again in another: ask in an activity"
            }
            Why::Files => {
                "is about the files of this machine, and after a crash the workflow may be run again on another: do \
                 it in an activity"
            }
            Why::Environment => {
                "is about this process, and after a crash the workflow is run again in another: ask in an activity, or \
                 take it as an argument"
            }
            Why::Terminal => {
                "belongs to this process, and after a crash the workflow is run again in another: wait for a \
                 `Signal`, or do it in an activity"
            }
            Why::Process => {
                "starts a program, and starts it anew whenever the workflow is run again: do it in an activity"
            }
            Why::Network => {
                "uses the network, and does so anew whenever the workflow is run again: do it in an activity"
            }
            Why::Database => {
                "talks to a database, and does so anew whenever the workflow is run again: do it in an activity"
            }
            Why::BlockOn => "holds the very thread that has to carry the step out: write `.await`",
        };
        format!("`{name}` {words}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(written: &str, wanted: Option<Why>) {
        let segments: Vec<String> = written.split("::").map(String::from).collect();
        assert_eq!(path(&segments), wanted, "{written}");
    }

    #[test]
    fn types_are_known_by_their_name_and_modules_by_their_crate() {
        check("SystemTime::now", Some(Why::Clock));
        check("std::time::SystemTime::now", Some(Why::Clock));
        check("chrono::offset::Utc::now", Some(Why::Clock));
        check("env::var", Some(Why::Environment));
        check("std::env::var", Some(Why::Environment));
        check("settings::env::var", None);
        check("now", None);
        check("workflow::now", None);
        check("Timestamp::now", None);
    }

    #[test]
    fn what_is_harmless_among_what_is_not_is_left_alone() {
        for harmless in [
            "std::time::Duration::from_secs",
            "tokio::time::Duration::from_secs",
            "tokio::task::coop::unconstrained",
            "tokio::sync::Mutex::new",
            "std::thread::panicking",
            "std::env::consts::OS",
            "std::net::Ipv4Addr::new",
            "rand::rngs::StdRng::seed_from_u64",
            "fastrand::Rng::with_seed",
            "reqwest::StatusCode::OK",
            "reqwest::Url::parse",
            "Command::new",
            "fs::write",
            "query",
            "rng",
            "spawn",
            "sleep",
        ] {
            check(harmless, None);
        }
    }

    #[test]
    fn everything_under_a_path_is_meant_but_not_the_path_itself() {
        check("tokio::fs::write", Some(Why::Files));
        check("tokio::fs", None);
        check("tokio::task::JoinSet::new", Some(Why::Task));
        check("tokio::time::Instant::now", Some(Why::Clock));
    }

    #[test]
    fn no_pattern_is_hidden_by_one_before_it() {
        for (at, (why, patterns)) in PATHS.iter().enumerate() {
            for pattern in *patterns {
                let example = pattern.strip_prefix("..::").unwrap_or(pattern).replace("..", "x");
                let segments: Vec<String> = example.split("::").map(String::from).collect();
                assert_eq!(path(&segments), *why, "`{pattern}` of entry {at}");
            }
        }
    }
}
