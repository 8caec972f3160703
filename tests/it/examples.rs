//! What a newcomer meets first keeps its word: the flagship example, and the code that the README shows.

use std::{
    fs,
    io::{BufRead, BufReader, Read},
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
};

use crate::support::{block_on, postgres, sqlite::Folder};

/// The example, where `cargo test --workspace` puts it: beside the folder of this test's own program.
fn buy_package() -> Command {
    let me = std::env::current_exe().expect("a test knows its own program");
    let name = format!("examples/buy_package{}", std::env::consts::EXE_SUFFIX);
    let program = me.ancestors().nth(2).expect("a test lies in target/…/deps").join(name);
    assert!(
        program.exists(),
        "{} is not there: `cargo test --workspace` builds it, or `cargo build --example buy_package`",
        program.display()
    );
    let mut command = Command::new(program);
    command.env_remove("COMPOSER_URL");
    command
}

/// Runs it to its end. That this returns says that no process is left: a worker would hold the pipe of stderr open.
fn shows_every_promise(example: &mut Command) {
    let output = example.output().expect("the example can be started");
    let table = String::from_utf8_lossy(&output.stdout);
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{}\n{table}\n{errors}", output.status);
    let row = |name: &str| {
        let found = table.lines().find_map(|line| line.trim_start().strip_prefix(name));
        found.unwrap_or_else(|| panic!("no row {name:?} in\n{table}")).trim()
    };
    assert_eq!((row("orders"), row("charges per order, at most")), ("200", "1"));
    assert_eq!((row("completed "), row("declined "), row("failed ")), ("185", "14", "1"));
    assert!(row("worker killed (SIGKILL)").starts_with("worker-"), "{table}");
    assert_ne!((row("runs taken over"), row("steps executed twice")), ("0", "0"), "{table}");
    assert!(row("take-over time").ends_with(" s") && table.contains(" both times"), "{table}");
    assert!(table.contains("`activate_package`") && table.contains("failed after 4 attempts"), "{table}");
    assert!(!table.contains("BROKEN"), "{table}");
}

#[test]
fn buy_package_keeps_its_promises_on_the_embedded_store_and_leaves_nothing_behind() {
    let folder = Folder::new();
    shows_every_promise(buy_package().env("TMPDIR", folder.path()));
    let left: Vec<PathBuf> =
        fs::read_dir(folder.path()).unwrap().map(|entry| entry.unwrap().path()).collect();
    assert_eq!(left, Vec::<PathBuf>::new());
}

#[test]
fn buy_package_keeps_its_promises_on_postgres_twice_in_one_database() {
    let Some(admin) = postgres::admin_url() else { return };
    let (name, url) = block_on(postgres::empty_database(&admin));
    for _ in 0..2 {
        shows_every_promise(buy_package().env("COMPOSER_URL", &url));
    }
    block_on(postgres::drop_database(&admin, &name));
}

#[test]
fn buy_package_takes_its_workers_with_it_when_it_is_killed() {
    let folder = Folder::new();
    let mut example = buy_package();
    example.env("TMPDIR", folder.path()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut example = Killed(example.spawn().expect("the example can be started"));
    let lines = BufReader::new(example.0.stdout.take().unwrap()).lines();
    assert!(
        lines.map_while(Result::ok).any(|line| line.starts_with("killed worker-")),
        "it never came to the middle"
    );
    example.0.kill().unwrap();
    // Held open by every worker: its end is that of the last of them. A hang here is the failure.
    example.0.stderr.take().unwrap().read_to_end(&mut vec![]).unwrap();
}

/// Killed at the latest when the test ends.
struct Killed(Child);

impl Drop for Killed {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn the_code_in_the_readme_is_that_of_the_examples() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let readme = fs::read_to_string(root.join("README.md")).expect("there is a README.md");
    let mut shown = 0;
    let blocks: Vec<&str> = readme.split("```rust\n").collect();
    for (before, block) in blocks.iter().zip(&blocks[1..]) {
        let code = block.split("```").next().unwrap();
        // `<!-- file:anchor -->` in the line above says where the code is from.
        let source = before.trim_end().lines().next_back().unwrap_or_default();
        let source = source.strip_prefix("<!-- ").and_then(|source| source.strip_suffix(" -->"));
        let (file, anchor) = source.and_then(|source| source.split_once(':')).unwrap_or_else(|| {
            panic!("README.md: the line above this code does not name its source:\n{code}")
        });
        let text = fs::read_to_string(root.join(file)).unwrap_or_else(|e| panic!("README.md: {file}: {e}"));
        assert_eq!(code, part(&text, anchor), "README.md: not what {file}:{anchor} is now");
        shown += 1;
    }
    assert!(shown >= 3, "the README shows code");
}

/// What stands between the two marks of an mdBook anchor.
fn part(text: &str, anchor: &str) -> String {
    let begin = format!("// ANCHOR: {anchor}");
    let end = format!("// ANCHOR_END: {anchor}");
    let inside = text.lines().skip_while(|line| line.trim() != begin).skip(1);
    inside.take_while(|line| line.trim() != end).flat_map(|line| [line, "\n"]).collect()
}
