//! Workflows that are awaited in workflows.

use composer_sdk::prelude::*;

use super::shop::*;
use crate::{
    Status,
    testing::{self, Error as TestError, Testing},
};

#[workflow]
pub(super) async fn two_orders() -> Result<Vec<String>, ShopError> {
    let (one, other) = join!(buy(order()).id("first"), buy(order()));
    Ok(vec![one?, other?])
}

fn approve_all(run: &testing::TestRun<two_orders>) {
    for child in run.children::<buy>() {
        child.signal(&APPROVAL, Decision::Yes).unwrap();
    }
}

#[test]
fn children_are_runs_of_their_own_and_their_results_come_back() {
    let env = shop().workflow::<buy>();
    let run = env.start(two_orders()).unwrap();
    env.settle().wait().unwrap();
    let waits = run.until_step(9).wait().map(drop);
    // Nobody has approved: after two days both are declined.
    assert!(matches!(waits, Err(TestError::NeverCame { status: Status::Failed, .. })), "{waits:?}");

    let env = shop().workflow::<buy>();
    let run = env.start(two_orders()).unwrap();
    env.settle().wait().unwrap();
    approve_all(&run);
    assert_eq!(run.result().wait().unwrap().unwrap().len(), 2);
    let children = run.children::<buy>();
    assert_eq!((children.len(), children[0].workflow_id().as_str()), (2, "first"));
    assert_eq!(children[1].status(), Status::Completed);
    assert_eq!(
        run.journal(),
        ["child buy: started", "child buy: started", "child buy: ok", "child buy: ok", "completed"]
    );
}

#[test]
fn a_parent_whose_child_waits_says_so() {
    #[workflow]
    async fn child() -> bool {
        APPROVAL.recv().await == Decision::Yes
    }
    #[workflow]
    async fn parent() -> bool {
        child().id("inner").await
    }
    let env = Testing::new().workflow::<child>();
    let run = env.start(parent()).unwrap();
    let waits = run.result().wait().unwrap_err();
    assert!(
        waits.to_string().contains("its child `inner` of `child` (see it with `run.children(..)`)"),
        "{waits}"
    );
    run.children::<child>()[0].signal(&APPROVAL, Decision::Yes).unwrap();
    assert_eq!(run.result().wait(), Ok(true));
}

#[test]
fn a_child_that_is_not_part_of_the_test_is_told_with_what_to_write() {
    let env = shop();
    let run = env.start(two_orders()).unwrap();
    let Err(TestError::Stuck { reason, .. }) = run.result().wait() else { panic!("nobody knows `buy`") };
    assert!(
        reason.contains("workflow `buy` (awaited at ") && reason.contains("`.workflow::<buy>()`"),
        "{reason}"
    );
}

#[test]
fn a_childs_id_that_is_taken_is_refused() {
    let env = shop().workflow::<buy>();
    let taken = env.start(buy(order()).id("first")).unwrap();
    let run = env.start(two_orders()).unwrap();
    env.settle().wait().unwrap();
    approve_all(&run);
    let Ok(Err(ShopError::Engine(failure))) = run.result().wait() else { panic!("the id is taken") };
    assert!(failure.message.contains("the workflow id `first` belongs to another run"), "{failure}");
    assert_eq!(taken.status(), Status::Running);
}

#[test]
fn a_family_survives_a_crash_everywhere() {
    let family = async |env: Testing| {
        let env = env.activities::<(reserve, release, tell)>().workflow::<buy>();
        let env = env.mock::<charge>().with(|_, _| Ok("paid".into())).fail::<charge>(1..=1, ShopError::Busy);
        let run = env.start(two_orders())?;
        env.settle().await?;
        approve_all(&run);
        let ended = run.result().await?;
        let ids: Vec<_> = run.children::<buy>().iter().map(|child| child.run_id()).collect();
        Ok::<_, TestError>((ended, ids))
    };
    let (ended, _) = testing::crash_everywhere(family).wait().unwrap();
    assert_eq!(ended.unwrap(), ["paid", "paid"]);
}

#[test]
fn a_cancelled_family_survives_a_crash_everywhere() {
    let family = async |env: Testing| {
        let env = env.activities::<(reserve, release, tell)>().hang::<charge>(..).workflow::<buy>();
        let run = env.start(two_orders())?;
        env.settle().await?;
        approve_all(&run);
        env.advance(Duration::from_secs(1)).await?;
        run.cancel("enough")?;
        let ended = run.result().await?;
        let children = run.children::<buy>();
        let statuses: Vec<_> = children.iter().map(|child| child.status()).collect();
        Ok::<_, TestError>((ended.is_err(), statuses, children[0].journal()))
    };
    let (failed, statuses, journal) = testing::crash_everywhere(family).wait().unwrap();
    assert!(failed);
    assert_eq!(statuses, [Status::Cancelled; 2]);
    let words = "cancel requested: the parent does not wait for it any more";
    assert_eq!(journal.lines().iter().filter(|line| line.to_string() == words).count(), 1);
    assert!(journal.contains("undo release: ok"), "{journal}");
}

#[test]
fn a_detached_child_goes_on() {
    #[workflow]
    async fn starts() -> Result<(), ShopError> {
        select! {
            bought = buy(order()).detached() => bought.map(drop),
            () = sleep(Duration::from_secs(1)) => Ok(()),
        }
    }
    let env = shop().workflow::<buy>();
    let run = env.start(starts()).unwrap();
    assert_eq!(run.result().wait(), Ok(Ok(())));
    let child = &run.children::<buy>()[0];
    assert_eq!(child.status(), Status::Running);
    child.signal(&APPROVAL, Decision::Yes).unwrap();
    assert!(child.result().wait().unwrap().is_ok());
}
