//! A: steps and the journal.

use std::{
    collections::BTreeMap,
    sync::{Mutex, PoisonError},
};

use composer_runtime::RunHandle;
use composer_sdk::{id::RunId, prelude::*};
use composer_tests::kit::{Command, sleep as nap, step, wait, workflow::GO};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::{
    World, projection, scenario,
    world::{parked, start, until_line},
};

scenario! {
    async fn a1_one_activity_is_one_effect_and_four_lines(world) {
        let worker = world.at_work().await;
        let run = start(&world.composer().await, [step("greet").into()]).await;
        assert_eq!(run.result().await.unwrap().unwrap(), [json!("greet")]);
        assert_eq!(
            projection(&run).await,
            ["started interpret", "step_scheduled effect", "step_completed effect #1", "run_completed"]
        );
        assert_eq!(world.effects.counts(), [("greet".into(), 1)]);
        worker.shutdown().await.unwrap();
    }
}

#[activity]
async fn weigh(parcel: String) -> Result<u32> {
    Ok(parcel.len() as u32)
}

#[activity]
async fn label(parcel: String, grams: u32) -> Result<String> {
    Ok(format!("{parcel}: {grams} g"))
}

#[workflow]
async fn ship(parcel: String) -> Result<String> {
    let grams = weigh(parcel.clone()).await?;
    label(parcel, grams).await
}

scenario! {
    async fn a2_a_step_is_given_what_the_one_before_returned(world) {
        let worker = world.worker().await.workflow::<ship>().activity::<weigh>().activity::<label>();
        let worker = worker.start().await.unwrap();
        let run = world.composer().await.start(ship("books".into())).await.unwrap();
        assert_eq!(run.result().await.unwrap().unwrap(), "books: 5 g");
        assert_eq!(
            projection(&run).await,
            [
                "started ship",
                "step_scheduled weigh",
                "step_completed weigh #1",
                "step_scheduled label",
                "step_completed label #1",
                "run_completed",
            ]
        );
        worker.shutdown().await.unwrap();
    }
}

scenario! {
    async fn a4_a_step_before_a_sleep_is_not_repeated_after_a_kill(world) {
        let mut first = world.process();
        let run = start(&world.composer().await, [step("once").into(), nap(1_200)]).await;
        until_line(&run, "timer_set").await;
        first.kill();

        let mut second = world.process();
        assert_eq!(run.result().await.unwrap().unwrap(), [json!("once"), Value::Null]);
        assert_eq!(world.effects.count("once"), 1);
        assert_eq!(
            projection(&run).await,
            [
                "started interpret",
                "step_scheduled effect",
                "step_completed effect #1",
                "timer_set sleep",
                "timer_fired",
                "run_completed",
            ]
        );
        second.kill();
    }
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
struct Parcel {
    to: Address,
    items: Vec<Item>,
    notes: BTreeMap<String, Vec<u8>>,
    by: Carrier,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
struct Address {
    street: String,
    floor: Option<i8>,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
struct Item(u64, f64);

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
enum Carrier {
    Own,
    Post(String),
    Courier { rider: String, km: u32 },
}

#[activity]
async fn hand_over(parcel: Parcel, carriers: Vec<Carrier>) -> Result<(Parcel, Vec<Carrier>)> {
    Ok((parcel, carriers))
}

/// Says what it saw in its last life.
#[workflow]
async fn deliver(parcel: Parcel, carriers: Vec<Carrier>) -> Result<(Parcel, Vec<Carrier>, bool)> {
    let (came, all) = hand_over(parcel.clone(), carriers.clone()).await?;
    GO.recv().await;
    let same = came == parcel && all == carriers;
    Ok((came, all, same))
}

scenario! {
    async fn a7_a_nested_value_is_the_same_live_and_replayed(world) {
        let worker = world.worker().await.workflow::<deliver>().activity::<hand_over>();
        let worker = worker.start().await.unwrap();
        let carriers = vec![
            Carrier::Own,
            Carrier::Post("inland".into()),
            Carrier::Courier { rider: "Zoë".into(), km: 7 },
        ];
        let parcel = Parcel {
            to: Address { street: "Rue de l'Été 1".into(), floor: Some(-1) },
            items: vec![Item(u64::MAX, 0.1), Item(0, -2.5e-300)],
            notes: BTreeMap::from([("".into(), vec![]), ("bytes".into(), vec![0, 255])]),
            by: carriers[2].clone(),
        };
        let run = world.composer().await.start(deliver(parcel.clone(), carriers.clone())).await.unwrap();
        parked(&run).await;
        // The signal brings it back: everything before the wait is replayed.
        run.signal(&GO, json!(1)).await.unwrap();
        assert_eq!(run.result().await.unwrap().unwrap(), (parcel, carriers, true));
        assert_eq!(worker.counts().attempts, 1);
        worker.shutdown().await.unwrap();
    }
}

scenario! {
    async fn a9_a_hundred_steps_are_a_hundred_records_that_one_replay_reads(world) {
        let worker = world.at_work().await;
        let steps = (0..100).map(|n| Command::from(step(format!("s{n}")))).chain([wait()]);
        let run = start(&world.composer().await, steps).await;
        parked(&run).await;
        run.signal(&GO, json!("end")).await.unwrap();
        let values = run.result().await.unwrap().unwrap();
        let names = (0..100).map(|n| json!(format!("s{n}"))).chain([json!("end")]);
        assert_eq!(values, names.collect::<Vec<_>>());
        let done: Vec<_> = run.journal().await.unwrap();
        let done: Vec<_> = done.iter().filter(|line| line.kind == "step_completed").collect();
        assert_eq!(done.iter().map(|line| line.step.unwrap()).collect::<Vec<_>>(), (1..=100).collect::<Vec<_>>());
        assert_eq!(world.effects.total(), 100);
        worker.shutdown().await.unwrap();
    }
}

#[activity]
async fn inner(n: u32) -> Result<u32> {
    Ok(n * 2)
}

#[activity(timeout = "5s")]
async fn outer(n: u32) -> Result<u32> {
    Ok(inner(n).await? + inner(n + 1).await?)
}

#[workflow]
async fn nested() -> Result<(u32, u32)> {
    let nested = outer(1).await?;
    GO.recv().await;
    Ok((nested, inner(nested).await?))
}

scenario! {
    async fn a11_an_activity_in_an_activity_is_a_plain_call(world) {
        let worker = world.worker().await.workflow::<nested>().activity::<outer>().activity::<inner>();
        // With a slot of its own, the inner call would wait for ever for the outer one's.
        let worker = worker.max_activities(1).start().await.unwrap();
        let run = world.composer().await.start(nested()).await.unwrap();
        parked(&run).await;
        run.signal(&GO, json!(1)).await.unwrap();
        assert_eq!(run.result().await.unwrap().unwrap(), (6, 12));
        let steps: Vec<_> = run.journal().await.unwrap();
        let steps: Vec<_> = steps
            .iter()
            .filter(|line| line.kind == "step_completed")
            .map(|line| (line.step.unwrap(), line.name.as_str()))
            .collect();
        assert_eq!(steps, [(1, "outer"), (2, "inner")]);
        worker.shutdown().await.unwrap();
    }
}

static ECHOED: Mutex<Vec<RunId>> = Mutex::new(Vec::new());

/// Makes no step; notes that its body ran.
#[workflow]
async fn echo(value: String) -> Result<String> {
    ECHOED.lock().unwrap_or_else(PoisonError::into_inner).push(composer_sdk::workflow::info().run_id);
    Ok(value)
}

async fn echo_once(world: &World) -> RunHandle<echo> {
    let worker = world.worker().await.workflow::<echo>().start().await.unwrap();
    let run = world.composer().await.start(echo("me".into())).id("echo").await.unwrap();
    assert_eq!(run.result().await.unwrap().unwrap(), "me");
    worker.shutdown().await.unwrap();
    run
}

scenario! {
    async fn a12_a_workflow_without_steps_is_its_start_and_its_end(world) {
        let run = echo_once(world).await;
        let again = echo_once(world).await;
        assert!(again.already());
        assert_eq!(projection(&run).await, ["started echo", "run_completed"]);
        let echoed = ECHOED.lock().unwrap_or_else(PoisonError::into_inner);
        assert_eq!(echoed.iter().filter(|id| **id == run.run_id()).count(), 1, "the body ran once");
    }
}
