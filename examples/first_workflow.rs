//! The first ten minutes: two activities, a workflow, a worker and a start.
//!
//! ```text
//! cargo run --example first_workflow
//! ```
// ANCHOR: all
use composer_runtime::Composer;
use composer_sdk::prelude::*;

// ANCHOR: activities
/// Picks a greeting. An activity may do anything: call a service, write a file, ask a model.
#[activity]
async fn greeting(language: String) -> Result<String> {
    println!("looking for a greeting in {language:?}");
    Ok(match language.as_str() {
        "de" => "Hallo".into(),
        "fr" => "Bonjour".into(),
        _ => "Hello".into(),
    })
}

/// Says it. `retry` and `timeout` are the engine's business, not the body's.
#[activity(retry(max_attempts = 5, first = "200ms"), timeout = "10s")]
async fn say(greeting: String, name: String) -> Result<String> {
    let line = format!("{greeting}, {name}!");
    println!("{line}");
    Ok(line)
}
// ANCHOR_END: activities

// ANCHOR: workflow
/// Each awaited call is a step: once its result is journaled, it is not done again.
#[workflow]
async fn welcome(name: String, language: String) -> Result<String> {
    let greeting = greeting(language).await?;
    sleep(Duration::from_secs(10)).await;
    say(greeting, name).await
}
// ANCHOR_END: workflow

// ANCHOR: main
#[tokio::main]
async fn main() -> Result<()> {
    let composer = Composer::connect_from_env().await?;
    let worker =
        composer.worker().workflow::<welcome>().activity::<greeting>().activity::<say>().start().await?;

    let run = composer.start(welcome("Ada".into(), "fr".into())).id("welcome-ada").await?;
    println!("the run ended with {:?}", run.result().await?);
    for line in run.journal().await? {
        println!(
            "{:>4} {:<16} {}",
            line.seq.map_or(String::new(), |seq| seq.to_string()),
            line.kind,
            line.name
        );
    }

    worker.shutdown().await?;
    Ok(())
}
// ANCHOR_END: main
// ANCHOR_END: all
