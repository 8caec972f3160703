//! the delay before a retry. R-17: which errors are retried. More of both is among the scenarios.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex},
};

use composer_sdk::{Failure, error::FailureKind, prelude::*};
use composer_tests::kit::step;
use serde::{Deserialize, Serialize};

use super::{World, scenario};
use crate::scenarios::{Answer, start};

const FAILS: Answer = Answer::Status(500, "not now");

/// The pauses between the calls of an effect, and the attempts that they were.
fn calls(world: &World, name: &str) -> (Vec<Duration>, Vec<u32>) {
    let calls = world.effects.calls(name);
    let pauses = calls.windows(2).map(|pair| pair[1].at - pair[0].at).collect();
    (pauses, calls.iter().map(|call| call.attempt).collect())
}

scenario! {
    async fn r16_the_whole_delay_passes_before_the_next_attempt(world) {
        world.effects.script("s", [FAILS, FAILS, FAILS]);
        let worker = world.at_work().await;
        let first = Duration::from_millis(150);
        let run = start(&world.composer().await, [step("s").first(first).attempts(4).into()]).await;
        run.result().await.unwrap().unwrap();
        let (pauses, attempts) = calls(world, "s");
        assert_eq!(attempts, [1, 2, 3, 4]);
        for (n, pause) in pauses.iter().enumerate() {
            let delay = first * 2_u32.pow(n as u32);
            assert!(*pause >= delay && *pause < delay + Duration::from_secs(1), "{n}: {pauses:?}");
        }
        worker.shutdown().await.unwrap();
    }
}

scenario! {
    async fn r16_a_policy_without_attempts_is_refused_at_the_call(world) {
        let worker = world.at_work().await;
        let run = start(&world.composer().await, [step("s").attempts(0).into()]).await;
        let error = run.result().await.unwrap().unwrap_err();
        assert_eq!(error.failure().map(|failure| failure.kind), Some(FailureKind::Refused));
        assert!(format!("{error:#}").contains("max_attempts"), "{error:#}");
        assert_eq!(world.effects.total(), 0);
        worker.shutdown().await.unwrap();
    }
}

/// How often each activity was attempted.
#[derive(Debug, Clone, Default)]
struct Tries(Arc<Mutex<BTreeMap<String, u32>>>);

impl Tries {
    /// One more of the activity that asks.
    fn count(&self) {
        *self.0.lock().unwrap().entry(activity::info().name.to_owned()).or_default() += 1;
    }

    fn of(&self, name: &str) -> u32 {
        self.0.lock().unwrap().get(name).copied().unwrap_or_default()
    }
}

#[derive(Debug, thiserror::Error, Serialize, Deserialize)]
enum Charge {
    #[error("the charge failed")]
    Step(#[from] Error),
    #[error(transparent)]
    Engine(#[from] Failure),
}

#[derive(Debug, thiserror::Error, Serialize, Deserialize)]
enum Unseen {
    #[error(transparent)]
    Step(#[from] Error),
    #[error(transparent)]
    Engine(#[from] Failure),
}

fn declined() -> Error {
    Error::permanent("declined")
}

macro_rules! activities {
    ($($name:ident -> $result:ty { $body:expr })*) => { $(
        #[activity(retry(max_attempts = 3, first = "1ms"))]
        async fn $name(#[state] tries: Tries) -> $result {
            tries.count();
            $body
        }
    )* };
}

activities! {
    in_anyhow -> anyhow::Result<()> { Err(anyhow::Error::from(declined()).context("charging")) }
    in_a_variant -> Result<(), Charge> { Err(declined())? }
    in_a_transparent_variant -> Result<(), Unseen> { Err(declined())? }
    in_layers -> Result<()> { Err(Charge::from(declined().context("charging"))).context("buying") }
    unmarked -> Result<()> { Err(Error::new("busy")).context("charging") }
}

/// The chains of their errors.
#[workflow]
async fn all_of_them() -> Result<Vec<String>> {
    Ok(vec![
        format!("{:#}", in_anyhow().await.unwrap_err()),
        format!("{:#}", Error::from(in_a_variant().await.unwrap_err())),
        in_a_transparent_variant().await.unwrap_err().to_string(),
        format!("{:#}", in_layers().await.unwrap_err()),
        format!("{:#}", unmarked().await.unwrap_err()),
    ])
}

/// The mark goes on through the workflow.
#[workflow]
async fn passes_it_on() -> Result<()> {
    in_layers().await.context("the order")
}

#[workflow]
async fn gives_up() -> Result<()> {
    unmarked().await
}

const PERMANENT: [&str; 4] = ["in_anyhow", "in_a_variant", "in_a_transparent_variant", "in_layers"];

async fn at_work(world: &World, tries: &Tries) -> composer_runtime::Worker {
    let worker = world.worker().await.state(tries.clone());
    let worker = worker.workflow::<all_of_them>().workflow::<passes_it_on>().workflow::<gives_up>();
    let worker =
        worker.activity::<in_anyhow>().activity::<in_a_variant>().activity::<in_a_transparent_variant>();
    worker.activity::<in_layers>().activity::<unmarked>().start().await.unwrap()
}

scenario! {
    async fn r17_the_permanent_mark_survives_every_wrapping(world) {
        let tries = Tries::default();
        let worker = at_work(world, &tries).await;
        let run = world.composer().await.start(all_of_them()).await.unwrap();
        assert_eq!(
            run.result().await.unwrap().unwrap(),
            [
                "charging: declined",
                "the charge failed: declined",
                "declined",
                "buying: the charge failed: charging: declined",
                "charging: busy",
            ]
        );
        for name in PERMANENT {
            assert_eq!(tries.of(name), 1, "{name}");
        }
        assert_eq!(tries.of("unmarked"), 3);

        let journal = run.journal().await.unwrap();
        for name in PERMANENT {
            let line = journal.iter().find(|line| line.name == name && line.attempt.is_some()).unwrap();
            assert_eq!((line.kind, line.attempt), ("step_failed", Some(1)), "{line:?}");
            assert!(line.detail.contains("declined (not retryable)"), "{line:?}");
        }
        worker.shutdown().await.unwrap();
    }
}

scenario! {
    async fn r17_the_permanent_mark_crosses_the_workflow(world) {
        let worker = at_work(world, &Tries::default()).await;
        let run = world.composer().await.start(passes_it_on()).await.unwrap();
        let error = run.result().await.unwrap().unwrap_err();
        assert!(error.is_permanent());
        assert_eq!(format!("{error:#}"), "the order: buying: the charge failed: charging: declined");
        worker.shutdown().await.unwrap();
    }
}

scenario! {
    async fn r17_the_journal_shows_number_cause_and_future_of_every_attempt(world) {
        let worker = at_work(world, &Tries::default()).await;
        let run = world.composer().await.start(gives_up()).await.unwrap();
        run.result().await.unwrap().unwrap_err();
        let journal = run.journal().await.unwrap();
        let attempts: Vec<_> = journal
            .iter()
            .filter_map(|line| Some((line.kind, line.attempt?, line.detail.as_str())))
            .collect();
        assert_eq!(
            attempts,
            [
                ("attempt_failed", 1, "charging: busy (will be retried)"),
                ("attempt_failed", 2, "charging: busy (will be retried)"),
                ("step_failed", 3, "charging: busy (attempts used up)"),
            ]
        );
        worker.shutdown().await.unwrap();
    }
}
