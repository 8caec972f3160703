//! The walk on bodies that are parsed here; where its messages point is what `tests/ui/determinism` shows.

use proc_macro2::Group;

use super::*;
use crate::{args::Kind, body, model::Function, params};

/// Looks at a workflow; in each message its words must be found, in that order.
#[track_caller]
fn check(function: &str, words: &[&str]) {
    let messages = messages(function);
    assert_eq!(messages.len(), words.len(), "{function}: {messages:#?}");
    for (message, words) in messages.iter().zip(words) {
        assert!(message.contains(words), "{function}: `{message}` does not say `{words}`");
    }
}

#[track_caller]
fn fine(body: &str) {
    check(&format!("async fn f() {{ {body} }}"), &[]);
}

#[track_caller]
fn refused(body: &str, words: &[&str]) {
    check(&format!("async fn f() {{ {body} }}"), words);
}

fn messages(function: &str) -> Vec<String> {
    let function: Function = syn::parse_str(function).expect("the test is a function");
    let Taken { marked, allowances, .. } = take(function.body);
    let stmts = body::read(marked).expect("marks can be parsed");
    let mut errors = Errors::default();
    let params = params::read(Kind::Workflow, &function.sig, &mut errors);
    super::check(&stmts, &params, &allowances, &mut errors);
    errors.messages()
}

#[test]
fn a_name_is_found_wherever_code_may_stand() {
    for code in [
        "SystemTime::now();",
        "::std::time::SystemTime::now();",
        "let f = SystemTime::now;",
        "x.unwrap_or_else(SystemTime::now);",
        "let f = || SystemTime::now();",
        "async move { SystemTime::now() }.await;",
        "match SystemTime::now() { _ => {} }",
        "if let Ok(d) = SystemTime::now().elapsed() {}",
        "S { at: SystemTime::now() };",
        "vec![SystemTime::now(); 3];",
        "join!(a(), async { SystemTime::now() });",
        "println!(\"{:?} {x}\", SystemTime::now(), x = 1);",
        "println!(\"{x:?}\", x = SystemTime::now());",
        "select! { a = b() => SystemTime::now(), c = d() => {} }",
        "select! { a = b() => { x() } c = d(SystemTime::now()) => {} }",
        "tokio::select! { biased; a = b(), if x => SystemTime::now(), else => y }",
        "select! { a = b() => a.unwrap_or_else(SystemTime::now), c = d() => {} }",
        "info!(at = ?SystemTime::now(), \"now\");",
        "json!({ \"at\": SystemTime::now() });",
        "fn helper() -> SystemTime { SystemTime::now() } helper();",
    ] {
        refused(code, &["`workflow::now()`"]);
    }
}

#[test]
fn what_only_looks_like_it_is_left_alone() {
    for code in [
        "now(); clock.now(); workflow::now(); composer_sdk::workflow::now();",
        "crate::time::SystemTime::now(); self::Instant::now(); super::env::var(\"x\");",
        "let x: SystemTime = y; let z: Option<Instant> = None; SystemTime::UNIX_EPOCH;",
        "env!(\"X\"); option_env!(\"X\"); stringify!(SystemTime::now());",
        "Duration::from_secs(1); tokio::time::Duration::from_secs(1);",
        "sleep(d).await; spawn(x); select! { a = b() => {} } join!(a, b);",
        "tokio::join!(a, b); futures::select_biased! { a = b => {} }",
        "tokio::select! { biased; a = b() => {} }",
        "#[activity] async fn inner() { SystemTime::now(); } inner().await;",
        "struct Instant; Instant::now();",
        "mod env { fn var() {} } env::var();",
        "use crate::clock::Instant; Instant::now();",
        "let rng = x; rng(); let block_on = y; block_on(z);",
        "x.elapsed(); self_made.spawn(y); d.block_on(1, 2);",
    ] {
        fine(code);
    }
}

#[test]
fn what_the_body_imports_is_known_by_its_whole_path_in_its_block_alone() {
    refused("use tokio::time::sleep; sleep(d).await;", &["`sleep` waits in memory"]);
    refused("{ use tokio::time::sleep; sleep(d).await; } sleep(d).await;", &["`sleep` waits in memory"]);
    refused("use tokio::{spawn as start, time}; start(x); time::sleep(d);", &["`start`", "`time::sleep`"]);
    refused("use std::time::{self, SystemTime as Clock}; Clock::now(); time::Instant::now();", &["", ""]);
    refused("use rand::rng; rng().random();", &["workflow::random"]);
    refused("use tokio::select; select! { a = b() => {} }", &["`select!` begins with a random branch"]);
}

#[test]
fn a_side_effect_may_ask_the_world_but_do_nothing_to_it() {
    for code in [
        "workflow::side_effect(|| std::env::var(\"X\").ok()).await;",
        "let id = side_effect(|| { let id = Uuid::now_v7(); id }).await;",
        "use composer_sdk::workflow::try_side_effect as recorded; recorded(|| File::open(p)).await?;",
        "side_effect(SystemTime::now).await;",
    ] {
        fine(code);
    }
    refused("side_effect(|| 1).await; SystemTime::now();", &["`workflow::now()`"]);
    refused("side_effect(|| 1).map(|_| Uuid::now_v7());", &["`workflow::uuid()`"]);
    refused("mod mine { fn side_effect() {} } SystemTime::now();", &["`workflow::now()`"]);
    for (code, words) in [
        ("side_effect(|| tokio::spawn(x)).await;", "starts work that is lost"),
        ("side_effect(|| ureq::get(url).call()).await;", "uses the network"),
        ("side_effect(|| std::thread::sleep(d)).await;", "holds up the worker's thread"),
    ] {
        refused(code, &[words]);
    }
}

#[test]
fn each_place_is_said_once_and_the_way_out_once_a_function() {
    let found = messages(
        "async fn f() { tokio::spawn(async { fastrand::u8(..) }); Instant::now(); Uuid::new_v4(); }",
    );
    let hints: Vec<_> = found.iter().map(|message| message.contains("allow_nondeterminism")).collect();
    assert_eq!(hints, [false, true, false], "what is given to `spawn` is no place of its own: {found:#?}");
}

#[test]
fn waits_on_the_thread_are_found_as_methods_too() {
    refused("handle.block_on(charge());", &["`block_on` holds the very thread"]);
    refused("futures::executor::block_on(charge());", &["`futures::executor::block_on`"]);
    refused("pollster::block_on(charge());", &["write `.await`"]);
}

#[test]
fn the_clock_is_found_behind_elapsed_where_the_instant_is_the_workflows() {
    refused("let begun = workflow::now(); a().await; begun.elapsed();", &["duration_since(begun)"]);
    refused("workflow::now().elapsed();", &["write `workflow::now().duration_since(…)`"]);
    refused("std::time::UNIX_EPOCH.elapsed();", &["reads this machine's clock"]);
    fine("let begun = workflow::now(); let begun = stopwatch(); begun.elapsed();");
}

#[test]
fn steps_in_the_order_of_a_hash_table_are_refused() {
    let words = "sort what it holds before";
    for code in [
        "let m: HashMap<u8, u8> = x; for (k, v) in m { charge(k).await; }",
        "let m = HashMap::new(); for k in m.keys() { charge(k).await; }",
        "let m = std::collections::HashMap::from([(1, 2)]); for k in &m { charge(k).await; }",
        "let mut m = HashMap::with_capacity(3); for v in m.values_mut() { *v = charge().await; }",
        "let m = x.collect::<HashMap<_, _>>(); for k in m.into_keys().take(3) { join!(a(k), b(k)); }",
        "let s = HashSet::from_iter(x); for k in s.iter().cloned().collect::<Vec<_>>() { charge(k).await; }",
        "let s: HashSet<_> = x.collect(); for (n, k) in s.iter().enumerate() { f(async { charge(k).await }) }",
        "let s: HashSet<u8> = x; join_all(s.iter().map(charge)).await;",
        "let s: HashSet<u8> = x; join_all(s.iter().map(|k| async move { charge(k).await })).await;",
        "let s: HashSet<u8> = x; let all = s.into_iter().map(charge).collect::<FuturesUnordered<_>>();",
        "let s: HashSet<u8> = x; let all: FuturesUnordered<_> = s.into_iter().map(charge).collect();",
        "let s: HashSet<u8> = x; let mut all = vec![]; for k in &s { all.push(charge(k)); } join_all(all).await;",
        "let s: HashSet<u8> = x; let all = FuturesUnordered::new(); for k in &s { all.push(charge(k)); }",
        "let s: HashSet<u8> = x; let s: FuturesUnordered<_> = s.into_iter().map(charge).collect();",
        "let s: HashSet<u8> = x; for k in s { compensate(refund(k)); }",
        "let s: HashSet<u8> = x; vec![join_all(s.iter().map(charge)).await];",
        "let s: HashSet<u8> = x; stream::iter(s).then(charge);",
        "let s: HashSet<u8> = x; let s = s.clone(); for k in s { charge(k).await; }",
    ] {
        refused(code, &[words]);
    }
    check(
        "async fn f(m: HashMap<String, u8>) { for k in m.keys() { charge(k).await; } }",
        &["make `m` a `BTreeMap`"],
    );
    check("async fn f(s: &HashSet<String>) { for k in s { charge(k).await; } }", &["make `s` a `BTreeSet`"]);
}

#[test]
fn a_hash_table_whose_order_decides_nothing_is_left_alone() {
    for code in [
        "let m: HashMap<u8, u8> = x; let sum: u8 = m.values().sum(); for v in m.values() { total += v; }",
        "let m: HashMap<u8, u8> = x; for k in names { charge(m.get(k)).await; }",
        "let m: HashMap<u8, u8> = x; for n in 0..m.len() { charge(n).await; }",
        "let m: HashMap<u8, u8> = x; for k in m.keys().sorted() { charge(k).await; }",
        "let m: HashMap<u8, u8> = x; for k in m.keys().collect::<BTreeSet<_>>() { charge(k).await; }",
        "let m: HashMap<u8, u8, Fixed> = x; for k in m.keys() { charge(k).await; }",
        "let m: BTreeMap<u8, u8> = x; for k in m.keys() { charge(k).await; }",
        "let m = HashMap::new(); let m = sorted(m); for k in m.keys() { charge(k).await; }",
        "let m = HashMap::new(); for m in lists { for k in m.iter() { charge(k).await; } }",
        "let m = HashMap::new(); let mut names = vec![]; for k in m.keys() { names.push(k); } names.sort();",
        "let m = HashMap::new(); let names = m.keys().map(|k| k.len()).collect::<Vec<_>>();",
    ] {
        fine(code);
    }
}

#[test]
fn an_allowance_lets_its_statement_or_expression_pass_and_nothing_else() {
    let allow = "#[allow_nondeterminism = \"it is only shown\"]";
    for code in [
        "ALLOW let x = Instant::now();",
        "let x = f(ALLOW Instant::now(), 1);",
        "ALLOW x = Instant::now();",
        "ALLOW x += f(Instant::now());",
        "ALLOW { a(); Instant::now(); Uuid::new_v4(); }",
        "ALLOW for k in x { Instant::now(); }",
        "ALLOW println!(\"{:?}\", Instant::now());",
        "println!(\"{:?}\", ALLOW Instant::now());",
        "S { ALLOW at: Instant::now() };",
        "match x { ALLOW 1 => Instant::now(), _ => y };",
        "fn helper() { ALLOW Instant::now(); }",
        "ALLOW fn helper() { Instant::now(); }",
        "ALLOW tokio::spawn(async { Instant::now() });",
        "ALLOW tokio::select! { a = b() => {} };",
        "select! { a = b() => { ALLOW Instant::now(); } c = d() => x }",
        "let s: HashSet<u8> = x; ALLOW for k in s { charge(k).await; }",
    ] {
        fine(&code.replace("ALLOW", allow));
    }
    refused(&format!("{allow} Instant::now(); Instant::now();"), &["`workflow::now()`"]);
    refused(&format!("f({allow} Instant::now(), Instant::now());"), &["`workflow::now()`"]);
    refused(&format!("let x = {allow} Instant::now() - Instant::now();"), &["`workflow::now()`"]);
}

#[test]
fn an_allowance_says_why_and_is_of_use() {
    for given in ["", " = \"\"", " = \"  \"", " = 7", "(\"why\")", "(reason = \"why\")"] {
        refused(
            &format!("#[allow_nondeterminism{given}] Instant::now();"),
            &["say why no step depends on it"],
        );
    }
    let allow = "#[allow_nondeterminism = \"it is only shown\"]";
    for code in [
        "ALLOW a().await;",
        "ALLOW { ALLOW Instant::now(); }",
        "#[activity] async fn inner() { ALLOW Instant::now(); }",
        "odd!(=> ALLOW x);",
    ] {
        refused(&code.replace("ALLOW", allow), &["lets nothing pass here"]);
    }
    refused(
        "#![allow_nondeterminism = \"it is only shown\"] Instant::now();",
        &["`workflow::now()`", "directly before the statement or expression"],
    );
}

#[test]
fn a_body_keeps_its_tokens_but_for_the_attributes() {
    let body: Group =
        syn::parse_str("{ #[cfg(unix)] #[allow_nondeterminism = \"x\"] f(#[allow_nondeterminism] y); }")
            .expect("the test is a group");
    let taken = take(body);
    assert_eq!(taken.stripped.to_string(), "{ # [cfg (unix)] f (y) ; }");
    assert_eq!(taken.allowances.len(), 2);
}
