//! C: crashes and recovery.

use composer_tests::kit::{Command, step};
use serde_json::Value;

use super::{scenario, world::start};

scenario! {
    async fn c1_after_a_kill_another_worker_goes_on_from_the_next_step(world) {
        let mut first = world.process();
        world.effects.hold("s4");
        let steps = (1..=10).map(|n| Command::from(step(format!("s{n}"))));
        let run = start(&world.composer().await, steps).await;
        world.effects.arrived("s4", 1).await;
        first.kill();
        world.effects.open("s4");

        let mut second = world.process();
        let values = run.result().await.unwrap().unwrap();
        assert_eq!(values, (1..=10).map(|n| Value::from(format!("s{n}"))).collect::<Vec<_>>());
        for n in 1..=10 {
            let name = format!("s{n}");
            assert_eq!(world.effects.keys(&name).len(), 1, "{name} has one key, however often it happened");
            assert_eq!(world.effects.count(&name), if n == 4 { 2 } else { 1 }, "{name}");
        }
        second.kill();
    }
}
