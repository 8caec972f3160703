//! What a newcomer meets first keeps its word: the flagship example, and the code that the README shows.

use std::{
    fs,
    io::{BufRead, BufReader, Read},
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
};

use composer_runtime::Composer;

use crate::support::{block_on, eventually, postgres, sqlite::Folder};

/// An example, where `cargo test --workspace` puts it: beside the folder of this test's own program.
fn example(name: &str) -> Command {
    let me = std::env::current_exe().expect("a test knows its own program");
    let file = format!("examples/{name}{}", std::env::consts::EXE_SUFFIX);
    let program = me.ancestors().nth(2).expect("a test lies in target/…/deps").join(file);
    assert!(
        program.exists(),
        "{} is not there: `cargo test --workspace` builds it, or `cargo build --example {name}`",
        program.display()
    );
    let mut command = Command::new(program);
    command.env_remove("COMPOSER_URL");
    command
}

fn buy_package() -> Command {
    example("buy_package")
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
fn the_first_workflow_goes_on_where_it_was_killed_as_the_book_says() {
    let folder = Folder::new();
    let mut first = example("first_workflow");
    first.current_dir(folder.path()).stdout(Stdio::null()).stderr(Stdio::null());
    let first = Killed(first.spawn().expect("the example can be started"));
    block_on(async {
        let composer = Composer::connect(format!("sqlite:{}", folder.file().display())).await.unwrap();
        eventually("the workflow sleeps", async || {
            let run = composer.get_json("welcome-ada").await.ok()?;
            let journal = run.journal().await.unwrap();
            journal.iter().any(|line| line.kind == "timer_set").then_some(())
        })
        .await;
    });
    drop(first);
    let second = example("first_workflow").current_dir(folder.path()).output().unwrap();
    let text = String::from_utf8_lossy(&second.stdout);
    assert!(second.status.success(), "{text}\n{}", String::from_utf8_lossy(&second.stderr));
    assert!(text.starts_with("Bonjour, Ada!\nthe run ended with Ok(\"Bonjour, Ada!\")\n"), "{text}");
}

#[test]
fn the_activities_of_the_book_do_what_it_says() {
    let folder = Folder::new();
    let output = example("activities").env("TMPDIR", folder.path()).output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{text}\n{}", String::from_utf8_lossy(&output.stderr));
    let lines: Vec<&str> = text.lines().collect();
    assert_eq!(
        lines[..3],
        [
            r#"Ok("a courier to the depot")"#,
            r#"Ok("1450 g, 2 labels, 1000 checked, 64 bytes kept")"#,
            "Err(no unit)"
        ]
    );
    assert!(lines[3].starts_with("step 1 `weigh_all` (") && lines[3].ends_with("after 1 attempt: no unit"));
}

#[test]
fn the_sagas_of_the_book_undo_what_it_says() {
    let folder = Folder::new();
    let output = example("sagas").env("TMPDIR", folder.path()).output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{text}\n{}", String::from_utf8_lossy(&output.stderr));
    assert_eq!(
        text.lines().collect::<Vec<_>>(),
        [
            "booked: hold seat 7, charge 4900, print the ticket of seat 7",
            "the limit of the card is 1,000",
            "undone: hold seat 8, charge 490000, refund 490000, free seat 8",
            "seat Some(14): hold seat 13, free seat 13, hold seat 14, charge 4900",
            "cancelled: the customer stays at home",
            "undone: charge 4900, print the ticket of seat 9, make the ticket of seat 9 void, refund 4900",
        ]
    );
}

#[test]
fn the_conversation_of_the_book_goes_as_it_says() {
    let folder = Folder::new();
    let output = example("talking").env("TMPDIR", folder.path()).output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{text}\n{}", String::from_utf8_lossy(&output.stderr));
    assert_eq!(text, "it is Waiting\npaying 4200\napproved by Ada\nSome(Paid)\n");
}

#[test]
fn the_children_of_the_book_do_what_it_says() {
    let folder = Folder::new();
    let output = example("children").env("TMPDIR", folder.path()).output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{text}\n{}", String::from_utf8_lossy(&output.stderr));
    assert_eq!(
        text.lines().collect::<Vec<_>>(),
        [
            "lamp, picked; bulb, picked",
            "left out: there are no unicorns",
            "order-7-parcel-0",
            "order-7-parcel-1",
            "order 7 is delivered",
            "please review order 7",
        ]
    );
}

#[test]
fn the_structures_of_the_book_do_what_it_says() {
    let folder = Folder::new();
    let output = example("structure").env("TMPDIR", folder.path()).output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{text}\n{}", String::from_utf8_lossy(&output.stderr));
    assert_eq!(
        text.lines().collect::<Vec<_>>(),
        [
            "5 pictures have come",
            "picture no. 2 is left out: picture 13 is broken",
            "album of 4",
            "is the album of 4 public?",
            "is the album of 4 public?",
            "is the album of 4 public?",
            "announced",
            "generation 0 has shown 2 in all",
            "generation 1 has shown 3 in all",
            "4 shown",
        ]
    );
}

#[test]
fn the_repairs_of_the_book_do_what_it_says() {
    let folder = Folder::new();
    let output = example("repair").env("TMPDIR", folder.path()).output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{text}\n{}", String::from_utf8_lossy(&output.stderr));
    let lines: Vec<&str> = text.lines().collect();
    assert_eq!(
        lines[..8],
        [
            "order 1 is on its way to Ada, London",
            "order 2 is on its way to Ada, London",
            "order 2 is on its way to Bob, Paris",
            "the fork did: send 2",
            "no send today",
            "the run did: reserve 3, charge 3, refund 3, release 3",
            "order 3 is on its way to Ada, London",
            "the redrive did: reserve 3, charge 3, send 3",
        ]
    );
    assert!(lines[8].starts_with("order-4 is Stuck: ") && lines[8].contains("no release today"), "{text}");
    assert!(lines.contains(&"  undo_failed      step 1  release"), "{text}");
    assert_eq!(lines.last(), Some(&"released by hand"));
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
