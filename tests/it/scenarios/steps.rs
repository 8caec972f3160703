//! A: steps and the journal.

use composer_sdk::prelude::*;
use composer_tests::kit::step;
use serde_json::json;

use super::{projection, scenario, world::start};

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
