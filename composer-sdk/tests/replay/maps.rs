//! `map`: so many at a time, results in the order of the items, and what becomes of errors.

use std::collections::BTreeMap;

use composer_sdk::{
    prelude::*,
    replay::Progress,
    workflow::{Settled, TooManyFailed, map},
};

use crate::sim::{Sim, describe, seeds, start};

#[activity]
async fn double(n: u32) -> u32 {
    n * 2
}

#[activity]
async fn even(n: u32) -> Result<u32> {
    if n.is_multiple_of(2) { Ok(n) } else { Err(Error::new(format!("{n} is odd"))) }
}

fn commands(sim: &Sim) -> Vec<String> {
    sim.commands.iter().map(describe).collect()
}

#[test]
fn results_are_in_the_order_of_the_items_whatever_is_done_first() {
    #[workflow]
    async fn body() -> Vec<u32> {
        map(0..50, double).await
    }
    seeds(30, |seed| {
        let sim = Sim::new(start(body()), seed).with::<double>().run();
        assert_eq!(sim.value::<Vec<u32>>(), (0..50).map(|n| n * 2).collect::<Vec<_>>());
        sim.check_replays();
    });
}

#[test]
fn no_items_are_an_empty_result_at_once() {
    #[workflow]
    async fn body() -> (Vec<u32>, Vec<u32>, usize, Vec<(usize, u32)>) {
        let none = Vec::new;
        let all = map(none(), double).limit(2).await;
        let values = map(none(), even).fail_fast().await.unwrap();
        let settled = map(none(), even).tolerate(0).await.unwrap();
        let first = map(none(), even).first(0).await.unwrap();
        (all, values, settled.values.len() + settled.errors.len(), first.values)
    }
    let sim = Sim::of(body());
    assert_eq!(sim.value::<(Vec<u32>, Vec<u32>, usize, Vec<(usize, u32)>)>(), (vec![], vec![], 0, vec![]));
    assert!(sim.journal.is_empty() && sim.commands.is_empty());
}

#[test]
fn with_a_limit_the_next_in_line_begins_when_one_is_done() {
    #[workflow]
    async fn body() -> Vec<u32> {
        map(0..10, double).limit(3).await
    }
    seeds(50, |seed| {
        let mut sim = Sim::new(start(body()), seed).with::<double>();
        let mut random = crate::sim::Random(seed);
        let mut begun = 3;
        assert_eq!(sim.steps(), ["1 double", "2 double", "3 double"]);
        while sim.progress == Progress::Waiting {
            let step = *sim.open.keys().nth(random.below(sim.open.len())).unwrap();
            sim.carry_out(step);
            begun = (begun + 1).min(10);
            assert_eq!(sim.open.len(), 3.min(10 - (sim.commands.len() - sim.open.len())));
            assert_eq!(sim.commands.last().unwrap().step(), begun, "in the order of the items");
        }
        assert_eq!(sim.value::<Vec<u32>>(), (0..10).map(|n| n * 2).collect::<Vec<_>>());
        sim.check_replays();
    });
}

#[test]
fn a_limit_of_zero_is_refused_in_words() {
    #[workflow]
    async fn body() -> Vec<u32> {
        map(0..3, double).limit(0).await
    }
    let reason = Sim::of(body()).stuck();
    assert!(reason.contains("limit(0)") && reason.contains("the least is 1"), "{reason}");
}

#[test]
fn the_first_error_of_the_journal_ends_it_and_stops_the_others() {
    #[workflow]
    async fn body() -> String {
        let failed = map(0..8, even).limit(4).fail_fast().await.unwrap_err();
        double(1).await;
        failed.to_string()
    }
    let mut sim = Sim::of(body()).with::<even>().with::<double>();
    // Items 0 to 3 are under way as steps 1 to 4; two of them fail, and the later one does so first.
    sim.carry_out(1);
    sim.carry_out(4);
    assert_eq!(commands(&sim)[4..], ["5 even", "2 abandoned", "3 abandoned", "5 abandoned", "6 double"]);
    sim.carry_out(6);
    assert_eq!(sim.value::<String>(), "3 is odd");
    sim.check_replays();
}

#[test]
fn values_without_an_error_are_all_there() {
    #[workflow]
    async fn body() -> Vec<u32> {
        map([4, 2, 0], even).fail_fast().await.unwrap()
    }
    seeds(10, |seed| {
        let sim = Sim::new(start(body()), seed).with::<even>().run();
        assert_eq!(sim.value::<Vec<u32>>(), [4, 2, 0]);
        sim.check_replays();
    });
}

#[test]
fn errors_are_tolerated_up_to_a_number_and_all_items_run() {
    type Result = std::result::Result<(Vec<(usize, u32)>, Vec<(usize, String)>), String>;
    fn shown(result: std::result::Result<Settled<u32, Error>, TooManyFailed<u32, Error>>) -> Result {
        let (settled, words) = match result {
            Ok(settled) => (settled, None),
            Err(failed) => (failed.settled.clone(), Some(failed.to_string())),
        };
        assert_eq!(settled.clone().into_values(), settled.values.iter().map(|(_, n)| *n).collect::<Vec<_>>());
        let errors = settled.errors.iter().map(|(place, error)| (*place, error.to_string())).collect();
        words.map_or(Ok((settled.values, errors)), Err)
    }
    #[workflow]
    async fn body(tolerated: usize) -> Result {
        shown(map([0, 1, 2, 3, 4], even).tolerate(tolerated).await)
    }
    seeds(20, |seed| {
        let sim = Sim::new(start(body(2)), seed).with::<even>().run();
        let (values, errors) = sim.value::<(Vec<(usize, u32)>, Vec<(usize, String)>)>();
        assert_eq!(values, [(0, 0), (2, 2), (4, 4)]);
        assert_eq!(errors, [(1, "1 is odd".into()), (3, "3 is odd".into())]);
        sim.check_replays();

        let sim = Sim::new(start(body(1)), seed).with::<even>().run();
        let composer_sdk::journal::Outcome::Err(words) = &sim.finished().outcome else { panic!() };
        let words: String = words.decode().unwrap();
        assert_eq!(words, "2 of 5 items failed, and at most 1 may: item 1: 1 is odd; item 3: 3 is odd");
        assert_eq!(sim.commands.len(), 5);
        sim.check_replays();
    });
}

#[test]
fn the_first_values_end_it_and_stop_the_others() {
    #[workflow]
    async fn body() -> Vec<(usize, u32)> {
        let first = map([1, 2, 4, 6, 8], even).first(2).await.unwrap();
        double(1).await;
        first.values
    }
    let mut sim = Sim::of(body()).with::<even>().with::<double>();
    for step in [1, 4, 2] {
        sim.carry_out(step);
    }
    assert_eq!(commands(&sim)[5..], ["3 abandoned", "5 abandoned", "6 double"]);
    sim.carry_out(6);
    assert_eq!(sim.value::<Vec<(usize, u32)>>(), [(3, 6), (1, 2)], "in the order in which they came");
    sim.check_replays();
}

#[test]
fn too_few_values_are_known_as_soon_as_they_can_be() {
    #[workflow]
    async fn body(limit: usize) -> Result<u32> {
        // Its length shows at its end only, and what it says after that does not count.
        let mut items = [Some(0), Some(1), Some(2), Some(3), Some(4), None, Some(6), Some(8)].into_iter();
        let first = map(std::iter::from_fn(|| items.next()?), even).limit(limit).first(4).await?;
        Ok(first.values.len() as u32)
    }
    #[workflow]
    async fn at_the_first_error() -> Result<u32> {
        let mut items = [1, 2].into_iter();
        Ok(map(std::iter::from_fn(|| items.next()), even).limit(2).first(2).await?.values.len() as u32)
    }
    #[workflow]
    async fn from_the_beginning() -> Result<u32> {
        let never = |_: u32| -> composer_sdk::Call<even> { panic!("there is no use in beginning") };
        Ok(map([0, 2], never).first(3).await?.values.len() as u32)
    }
    let reason = |sim: &Sim| sim.finished().reason.clone().unwrap();
    for limit in [5, 6] {
        let mut sim = Sim::of(body(limit)).with::<even>();
        sim.carry_out(2);
        assert_eq!(sim.progress, Progress::Waiting);
        sim.carry_out(4);
        let words = "too many items failed (2) for 4 to succeed: item 1: 1 is odd; item 3: 3 is odd";
        assert!(reason(&sim).starts_with(words), "{}", reason(&sim));
        sim.check_replays();
    }
    let mut sim = Sim::of(at_the_first_error()).with::<even>();
    sim.carry_out(1);
    assert!(reason(&sim).starts_with("too many items failed (1) for 2 to succeed"), "{}", reason(&sim));
    let sim = Sim::of(from_the_beginning());
    assert_eq!(reason(&sim), "too many items failed (0) for 3 to succeed");
    assert!(sim.commands.is_empty());
}

#[test]
fn many_errors_are_told_in_few_words() {
    let failed = futures::executor::block_on(map(0..9, async |n| Err::<(), u32>(n)).tolerate(3)).unwrap_err();
    assert_eq!(
        failed.to_string(),
        "9 of 9 items failed, and at most 3 may: item 0: 0; item 1: 1; item 2: 2; and 6 more"
    );
    assert_eq!(failed.settled.errors.len(), 9);
}

/// What is there: an ordinary helper with a borrowed argument.
async fn length(text: &str) -> u32 {
    double(text.len() as u32).await
}

#[test]
fn items_may_be_borrowed_and_closures_may_borrow() {
    #[workflow]
    async fn body(names: Vec<String>, prices: BTreeMap<String, u32>) -> Vec<Vec<u32>> {
        let (more, words) = (10, "words".to_owned());
        let mut called = 0;
        let mut all = vec![
            map(&names, |name| length(name)).await,
            map(names.iter(), |name| double(name.len() as u32)).limit(2).await,
            map(&names, |name| async move { length(name).await + 1 }).await,
            map(&names, async |name| length(name).await + more).limit(1).await,
            map(&prices, |(name, price)| {
                let words = &words;
                async move { length(name).await + length(words).await + price }
            })
            .await,
            map(prices.values().copied(), double).limit(1).await,
            map(names.iter().enumerate(), |(n, name)| {
                called += 1;
                let other = &words[n..];
                async move { length(name).await + length(other).await }
            })
            .await,
            map(&names, |name| even(name.len() as u32)).fail_fast().await.unwrap_or_default(),
            map(&names, async |name| even(name.len() as u32 + more).await)
                .tolerate(9)
                .await
                .unwrap()
                .into_values(),
            map(&names, |name| async move { even(length(name).await).await })
                .limit(1)
                .first(2)
                .await
                .unwrap()
                .into_values(),
            map(names, async |name: String| length(&name).await).await,
        ];
        all.push(vec![called]);
        all
    }
    let names = vec!["a".to_owned(), "bb".to_owned()];
    let prices = BTreeMap::from([("a".to_owned(), 5), ("bb".to_owned(), 6)]);
    seeds(20, |seed| {
        let sim = Sim::new(start(body(names.clone(), prices.clone())), seed).with::<double>().with::<even>();
        let sim = sim.run();
        let expected: [&[u32]; 12] = [
            &[2, 4],
            &[2, 4],
            &[3, 5],
            &[12, 14],
            &[17, 20],
            &[10, 12],
            &[12, 12],
            &[],
            &[12],
            &[2, 4],
            &[2, 4],
            &[2],
        ];
        assert_eq!(sim.value::<Vec<Vec<u32>>>(), expected);
        sim.check_replays();
    });
}

#[test]
fn a_map_is_a_branch_like_any_other() {
    #[workflow]
    async fn body() -> (Vec<u32>, Vec<u32>, u32) {
        let spawned = workflow::spawn(map(0..20, double).limit(4));
        let (joined, nested) = join!(map(vec![1, 2, 3], double), async {
            let all = map(0..3, async |n| map(0..n, double).limit(1).await.len() as u32).await;
            all.iter().sum()
        });
        (spawned.await, joined, nested)
    }
    seeds(30, |seed| {
        let sim = Sim::new(start(body()), seed).with::<double>().run();
        let doubles = (0..20).map(|n| n * 2).collect();
        assert_eq!(sim.value::<(Vec<u32>, Vec<u32>, u32)>(), (doubles, vec![2, 4, 6], 3));
        sim.check_replays();
    });
}
