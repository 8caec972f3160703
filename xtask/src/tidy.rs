//! `cargo xtask tidy`: the rules of ARCHITECTURE.md that can be read off the source.
//!
//! Each rule is a small function from the repository's text to findings. They are also tests, in
//! `tests/it/tidy.rs`. Comments are not looked at, strings are: a rule errs on the side of a false alarm, which
//! somebody then words differently.

use std::fs;
use std::process::Command;

use crate::command::output;
use crate::{Result, root};

/// A rule: what holds, and what breaks it.
#[derive(Debug, Clone, Copy)]
pub struct Rule {
    /// What holds, as a sentence.
    pub sentence: &'static str,
    /// The places where it does not, one line each.
    pub check: fn(&Tree) -> Vec<String>,
}

/// SQL is written in the stores and nowhere else.
pub const SQL_ONLY_IN_STORES: Rule = Rule {
    sentence: "SQL is only in composer-runtime/src/store",
    check: |tree| {
        let outside = tree.ours().filter(|file| !file.path.starts_with("composer-runtime/src/store/"));
        find(outside, "SQL belongs into the stores", |line| {
            let line = line.to_ascii_lowercase();
            SQL.iter().any(|sql| line.contains(sql))
        })
    },
};

/// What only SQL, or code that runs SQL, looks like.
const SQL: [&str; 12] = [
    "\"select ",
    "\"insert into ",
    "\"update ",
    "\"delete from ",
    "\"create ",
    "\"alter table ",
    "\"drop table ",
    "\"with recursive ",
    "sqlx::query",
    "sqlx::raw_sql",
    "querybuilder",
    "assertsqlsafe",
];

/// Redis is spoken to in the dispatchers and nowhere else.
pub const REDIS_ONLY_IN_DISPATCH: Rule = Rule {
    sentence: "Redis is only in composer-runtime/src/dispatch",
    check: |tree| {
        let outside = tree.ours().filter(|file| !file.path.starts_with("composer-runtime/src/dispatch/"));
        find(outside, "Redis belongs into the dispatchers", |line| line.contains("redis::"))
    },
};

/// The time of day comes from the database; what little is left comes from one file, or goes into an HTTP header.
pub const WALL_CLOCK_ONLY_IN_CLOCK: Rule = Rule {
    sentence: "the system's wall clock is only in composer-runtime/src/clock.rs and in the sdk's http",
    check: |tree| {
        let elsewhere = |file: &&File| file.path != "composer-runtime/src/clock.rs" && !is_http(&file.path);
        find(tree.ours().filter(elsewhere), "ask the store, or composer-runtime/src/clock.rs", |line| {
            ["SystemTime::now(", "UNIX_EPOCH.elapsed(", "Timestamp::now(", "Utc::now("]
                .iter()
                .any(|clock| line.contains(clock))
        })
    },
};

/// Replay is a function of the journal: no clock, environment, file, socket or thread.
pub const SDK_IS_PURE: Rule = Rule {
    sentence: "the sdk touches the world in its http and nowhere else",
    check: |tree| {
        let pure = tree.under("composer-sdk/src/").filter(|file| !is_http(&file.path));
        find(pure, "replay must stay pure", |line| WORLD.iter().any(|world| line.contains(world)))
    },
};

/// The one part of the sdk that touches the world, for activities.
fn is_http(path: &str) -> bool {
    path == "composer-sdk/src/http.rs" || path.starts_with("composer-sdk/src/http/")
}

/// Ways out of a pure function, in the standard library; other crates are kept out by the manifest.
const WORLD: [&str; 8] = [
    "Instant::now(",
    "std::fs",
    "TcpStream",
    "std::env::",
    "env::var",
    "thread::spawn",
    "thread::sleep",
    "std::process::",
];

/// `unsafe` is forbidden in the workspace, and every crate says that the workspace's lints are its own.
pub const UNSAFE_IS_FORBIDDEN: Rule = Rule {
    sentence: "every crate forbids unsafe code",
    check: |tree| {
        let manifests = tree.files.iter().filter(|file| file.path.ends_with("/Cargo.toml"));
        let with_lints = |file: &&File| !file.text.contains("[lints]\nworkspace = true");
        let mut findings =
            manifests.filter(with_lints).map(|file| format!("{}: no `[lints] workspace = true`", file.path));
        let mut all = findings.by_ref().collect::<Vec<_>>();
        let workspace = tree.files.iter().find(|file| file.path == "Cargo.toml");
        if !workspace.is_some_and(|file| file.text.contains("unsafe_code = \"forbid\"")) {
            all.push("Cargo.toml: the workspace's lints do not forbid unsafe_code".to_owned());
        }
        all
    },
};

/// The repository builds anywhere: it names no machine's folders and no private registry.
pub const NO_MACHINE_IS_NAMED: Rule = Rule {
    sentence: "no tracked file names a machine's own folders or a private registry",
    check: |tree| {
        let mut findings = Vec::new();
        for file in &tree.files {
            for (number, line) in file.text.lines().enumerate() {
                if file.path == "Cargo.lock" && line.starts_with("source = ") && !line.contains(INDEX) {
                    findings.push(format!("{}:{}: {}", file.path, number + 1, line.trim()));
                }
                if MACHINE.iter().any(|folder| names_folder(line, &folder.concat())) {
                    findings.push(format!("{}:{}: {}", file.path, number + 1, line.trim()));
                }
            }
            if file.path == ".cargo/config.toml"
                && ["[source", "[registr"].iter().any(|it| file.text.contains(it))
            {
                findings.push(format!("{}: names a registry of its own", file.path));
            }
        }
        findings
    },
};

/// The public index, the only one that the lock file may name.
const INDEX: &str = "\"registry+https://github.com/rust-lang/crates.io-index\"";

/// In pieces, so that this file does not name them either.
const MACHINE: [[&str; 2]; 3] = [["/wo", "rk/"], ["/ro", "ot/"], ["/ho", "me/"]];

/// Every source file opens by saying what it is for.
pub const MODULES_HAVE_HEADERS: Rule = Rule {
    sentence: "every module opens with what it is for",
    check: |tree| {
        let sources = tree.ours().chain(tree.under("xtask/src/")).chain(tree.under("bench/src/"));
        let bare = sources.filter(|file| !file.text.starts_with("//!"));
        bare.map(|file| format!("{}: does not open with a `//!` header", file.path)).collect()
    },
};

/// All rules.
pub const RULES: [Rule; 7] = [
    SQL_ONLY_IN_STORES,
    REDIS_ONLY_IN_DISPATCH,
    WALL_CLOCK_ONLY_IN_CLOCK,
    SDK_IS_PURE,
    UNSAFE_IS_FORBIDDEN,
    NO_MACHINE_IS_NAMED,
    MODULES_HAVE_HEADERS,
];

/// Checks all rules.
///
/// # Errors
/// What breaks them, one line each.
pub fn run() -> Result<()> {
    let tree = Tree::read()?;
    let broken = RULES.iter().filter_map(|rule| tree.check(*rule).err()).collect::<Vec<_>>();
    if broken.is_empty() { Ok(()) } else { Err(broken.join("\n")) }
}

/// The text of the repository: every file that is tracked, or new and not ignored.
#[derive(Debug)]
pub struct Tree {
    files: Vec<File>,
}

#[derive(Debug)]
struct File {
    /// From the repository's root.
    path: String,
    text: String,
}

impl Tree {
    /// Reads it.
    ///
    /// # Errors
    /// When this is not a git checkout.
    pub fn read() -> Result<Self> {
        let mut git = Command::new("git");
        git.args(["ls-files", "-z", "--cached", "--others", "--exclude-standard"]).current_dir(root());
        let paths = output(&mut git).map_err(|e| format!("{e}\ntidy needs git, and a checkout"))?;
        let read = |path: &str| {
            Some(File { path: path.to_owned(), text: fs::read_to_string(root().join(path)).ok()? })
        };
        Ok(Self { files: paths.split('\0').filter_map(read).collect() })
    }

    /// Checks one rule.
    ///
    /// # Errors
    /// The rule and what breaks it.
    pub fn check(&self, rule: Rule) -> Result<()> {
        let findings = (rule.check)(self);
        let broken = || format!("broken: {}\n  {}", rule.sentence, findings.join("\n  "));
        if findings.is_empty() { Ok(()) } else { Err(broken()) }
    }

    /// The source of the crates that users depend on and that run in their processes.
    fn ours(&self) -> impl Iterator<Item = &File> {
        self.under("composer-sdk/src/").chain(self.under("composer-runtime/src/"))
    }

    fn under(&self, folder: &str) -> impl Iterator<Item = &File> {
        self.files.iter().filter(move |file| file.path.starts_with(folder) && file.path.ends_with(".rs"))
    }
}

/// The lines of code (not of comments, nor of tests) that match.
fn find<'a>(
    files: impl Iterator<Item = &'a File>,
    advice: &str,
    matches: impl Fn(&str) -> bool,
) -> Vec<String> {
    let mut findings = Vec::new();
    for file in files.filter(|file| !file.path.ends_with("/tests.rs") && !file.path.contains("/tests/")) {
        let code = file.text.split("#[cfg(test)]\nmod tests {").next().unwrap_or_default();
        for (number, line) in code.lines().enumerate() {
            let line = line.trim();
            if !line.starts_with("//") && matches(line) {
                findings.push(format!("{}:{}: {line}   ({advice})", file.path, number + 1));
            }
        }
    }
    findings
}

/// Whether a line names the folder as the start of a path (`/x/home/` does not count).
fn names_folder(line: &str, folder: &str) -> bool {
    line.match_indices(folder).any(|(at, _)| {
        let before = line[..at].chars().next_back();
        !before.is_some_and(|c| c.is_alphanumeric() || "_-.}/*".contains(c))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(rule: Rule, path: &str, text: &str, findings: usize) {
        let file = |path: &str, text: &str| File { path: path.to_owned(), text: text.to_owned() };
        let forbids = file("Cargo.toml", "unsafe_code = \"forbid\"");
        let tree = Tree { files: vec![file(path, text), forbids] };
        assert_eq!((rule.check)(&tree).len(), findings, "{path}: {:?}", (rule.check)(&tree));
    }

    #[test]
    fn each_rule_sees_what_breaks_it() {
        let sql = "//! Header.\nlet a = \"select 1\";\n// \"select 2\"\n";
        check(SQL_ONLY_IN_STORES, "composer-runtime/src/client.rs", sql, 1);
        check(SQL_ONLY_IN_STORES, "composer-runtime/src/store/runs.rs", sql, 0);
        check(SQL_ONLY_IN_STORES, "composer-runtime/src/client/tests.rs", sql, 0);
        let in_tests = sql.replace("\nlet", "\n#[cfg(test)]\nmod tests {\nlet");
        check(SQL_ONLY_IN_STORES, "composer-runtime/src/client.rs", &in_tests, 0);
        check(REDIS_ONLY_IN_DISPATCH, "composer-runtime/src/worker.rs", "use redis::Client;", 1);
        check(WALL_CLOCK_ONLY_IN_CLOCK, "composer-runtime/src/worker.rs", "SystemTime::now()", 1);
        check(WALL_CLOCK_ONLY_IN_CLOCK, "composer-runtime/src/clock.rs", "SystemTime::now()", 0);
        check(WALL_CLOCK_ONLY_IN_CLOCK, "composer-sdk/src/http/date.rs", "SystemTime::now()", 0);
        check(SDK_IS_PURE, "composer-sdk/src/replay/mod.rs", "std::thread::sleep(d)", 1);
        check(SDK_IS_PURE, "composer-sdk/src/http.rs", "std::thread::sleep(d)", 0);
        check(UNSAFE_IS_FORBIDDEN, "bench/Cargo.toml", "[package]\n", 1);
        check(UNSAFE_IS_FORBIDDEN, "bench/Cargo.toml", "[lints]\nworkspace = true\n", 0);
        check(MODULES_HAVE_HEADERS, "composer-sdk/src/a.rs", "fn a() {}", 1);
        check(NO_MACHINE_IS_NAMED, "README.md", &format!("see {}x", MACHINE[0].concat()), 1);
        check(
            NO_MACHINE_IS_NAMED,
            "README.md",
            &format!("see https://example.org{}x", MACHINE[2].concat()),
            0,
        );
        check(NO_MACHINE_IS_NAMED, "Cargo.lock", "source = \"registry+https://example.org/index\"", 1);
    }
}
