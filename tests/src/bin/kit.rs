//! A process that works, or starts runs, or both, as the JSON of its one argument says; see `kit::Setup`.

use std::io::Write;

use composer_tests::kit::{self, Setup, workflow::interpret};

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error + Send + Sync>> {
    let setup: Setup =
        serde_json::from_str(&std::env::args().nth(1).ok_or("an argument: the setup as JSON")?)?;
    match setup.lines {
        true => kit::log::print_lines(),
        false => kit::log::init(),
    }
    let composer = kit::composer(&setup).await?;
    let worker = kit::worker(&composer, &setup);
    if setup.start.is_empty() {
        return Ok(worker.run().await?);
    }
    let worker = match setup.work {
        true => Some(worker.start().await?),
        false => None,
    };
    let starts = setup.start.into_iter().map(async |start| {
        let new = composer.start(interpret(start.commands));
        let run = match start.id {
            Some(id) => new.id(id).await?,
            None => new.await?,
        };
        let mut out = std::io::stdout().lock();
        let found = if run.already() { "already" } else { "new" };
        writeln!(out, "{} {found} {}", run.run_id(), run.workflow_id())?;
        out.flush()?;
        Ok::<_, Box<dyn std::error::Error + Send + Sync>>(())
    });
    futures::future::try_join_all(starts).await?;
    std::future::pending::<()>().await;
    drop(worker);
    Ok(())
}
