//! The work that is measured: nothing, or a tenth of a second of it.

use composer_sdk::prelude::*;

/// A step that does nothing, with a result of about a hundred bytes.
#[activity(retry(max_attempts = 1))]
pub(crate) async fn nothing(step: u32) -> Result<String> {
    Ok(format!("{step:0>100}"))
}

/// K steps, one after the other.
#[workflow]
pub(crate) async fn steps(k: u32) -> Result<u32> {
    for step in 0..k {
        nothing(step).await?;
    }
    Ok(k)
}

/// N steps at once.
#[workflow]
pub(crate) async fn fan_out(n: u32) -> Result<usize> {
    let done = futures::future::join_all((0..n).map(nothing)).await;
    Ok(done.into_iter().collect::<Result<Vec<_>>>()?.len())
}

/// A step that takes a tenth of a second, and leaves a trace of each execution.
#[activity]
pub(crate) async fn slow(traces: String, run: u32, step: u32) -> Result<()> {
    tokio::time::sleep(Duration::from_millis(100)).await;
    let key = composer_sdk::activity::idempotency_key();
    let line = format!("{} {run} {step} {key}\n", std::process::id());
    let mut file = std::fs::OpenOptions::new().create(true).append(true).open(traces)?;
    std::io::Write::write_all(&mut file, line.as_bytes())?;
    Ok(())
}

/// Ten of them.
#[workflow]
pub(crate) async fn slow_steps(traces: String, run: u32) -> Result<()> {
    for step in 0..10 {
        slow(traces.clone(), run, step).await?;
    }
    Ok(())
}

/// A run that waits.
#[workflow]
pub(crate) async fn nap() -> Result<()> {
    sleep(Duration::from_secs(3600)).await;
    Ok(())
}
