//! Runs that continue as new.

use composer_sdk::{Signal, prelude::*, workflow::continue_as_new};

use crate::testing::Testing;

static ITEM: Signal<u32> = Signal::new("item");

#[activity]
async fn store(n: u32) -> u32 {
    n
}

/// Two items a generation, until there is a 0.
#[workflow]
async fn collect(mut sum: u32) -> u32 {
    for _ in 0..2 {
        match ITEM.recv().await {
            0 => return sum,
            n => sum += store(n).await,
        }
    }
    continue_as_new(collect(sum)).await
}

#[workflow]
async fn hand_over(n: u32) -> u32 {
    continue_as_new(collect(n)).await
}

fn fed(env: &Testing) -> u32 {
    let run = env.start(collect(0)).unwrap();
    for n in [1, 2, 3, 4, 5, 0] {
        run.signal(&ITEM, n).unwrap();
    }
    run.result().wait().unwrap()
}

#[test]
fn signals_go_from_generation_to_generation() {
    assert_eq!(fed(&Testing::new().activity::<store>()), 15);
}

#[test]
fn a_crash_at_any_write_changes_nothing() {
    for n in 1..=20 {
        let crash = if n % 2 == 0 { "before" } else { "after" };
        let env = Testing::new().activity::<store>();
        let env = if n % 2 == 0 { env.crash_before_write(n) } else { env.crash_after_write(n) };
        assert_eq!(fed(&env), 15, "{crash} write {n}");
    }
}

#[test]
fn a_run_goes_on_as_another_workflow_if_the_test_has_it() {
    let env = Testing::new().workflow::<collect>().activity::<store>();
    let run = env.start(hand_over(7)).unwrap();
    run.signal(&ITEM, 0).unwrap();
    assert_eq!(run.result().wait(), Ok(7));
    let run = Testing::new().start(hand_over(7)).unwrap();
    let stuck = run.result().wait().unwrap_err().to_string();
    assert!(stuck.contains("`collect`, with which the run goes on, is not part of this test"), "{stuck}");
}
