//! N: seeing what runs do.

use composer_tests::kit::{Command, step, wait, workflow::GO};
use serde_json::json;

use super::{
    scenario,
    world::{parked, start, until_lines},
};

/// What workflows said on that process's stdout: the words before the fields.
fn words(lines: Vec<String>) -> Vec<String> {
    lines.into_iter().map(|line| line.split(" run_id=").next().unwrap_or_default().to_owned()).collect()
}

scenario! {
    async fn n3_each_line_of_a_workflow_is_written_once_over_evictions_and_a_kill(world) {
        let log = |text: &str| Command::Log(text.into());
        let mut first = world.process_with(|setup| {
            (setup.lines, setup.linger_ms, setup.poll_ms) = (true, 0, 1);
        });
        world.effects.hold("held");
        let commands = [
            log("before the first entry"),
            wait(),
            log("after a signal"),
            step("quick").into(),
            log("after a step"),
            wait(),
            log("before the kill"),
            step("held").into(),
            log("after the kill"),
        ];
        let run = start(&world.composer().await, commands).await;
        parked(&run).await;
        run.signal(&GO, json!(1)).await.unwrap();
        until_lines(&run, "step_completed", 1).await;
        parked(&run).await;
        run.signal(&GO, json!(2)).await.unwrap();
        world.effects.arrived("held", 1).await;
        let said = words(first.killed().await);

        let mut second = world.process_with(|setup| setup.lines = true);
        world.effects.open("held");
        run.result().await.unwrap().unwrap();
        let said_later = words(second.killed().await);
        let twice = |text: &str| [format!("logged {text}"), format!("traced {text}")];
        let once = ["before the first entry", "after a signal", "after a step", "before the kill"].map(twice);
        assert_eq!(said, once.as_flattened());
        assert_eq!(said_later, twice("after the kill"));
    }
}
