//! Child workflows: the code of the book's chapter about them, as a program.
//!
//! ```text
//! cargo run --example children
//! ```

use composer_runtime::{Composer, RunFilter};
use composer_sdk::prelude::*;
use futures::future::join_all;

#[activity]
async fn pick(item: &str) -> Result<String> {
    if item == "unicorn" {
        return Err(Error::permanent("there are no unicorns"));
    }
    Ok(format!("{item}, picked"))
}

#[activity]
async fn note(words: &str) {
    println!("{words}");
}

// ANCHOR: child
#[workflow]
async fn parcel(items: Vec<String>) -> Result<String> {
    let picked = join_all(items.iter().map(|item| pick(item))).await;
    Ok(picked.into_iter().collect::<Result<Vec<_>>>()?.join("; "))
}
// ANCHOR_END: child

// ANCHOR: parent
#[workflow]
async fn order(number: u32, parcels: Vec<Vec<String>>) -> Result<Vec<String>> {
    // Each parcel is a run of its own: another journal, another id, perhaps another worker.
    let children = parcels.into_iter().enumerate().map(|(n, items)| {
        parcel(items).id(format!("order-{number}-parcel-{n}")).run_timeout(Duration::days(1))
    });
    let mut sent = vec![];
    for done in join_all(children).await {
        match done {
            Ok(parcel) => sent.push(parcel),
            // The child has failed; what that means is the parent's to say.
            Err(error) => sent.push(format!("left out: {error}")),
        }
    }
    Ok(sent)
}
// ANCHOR_END: parent

// ANCHOR: detached
#[workflow]
async fn deliver(number: u32) -> Result<()> {
    select! {
        // Goes on when nobody waits for it any more.
        done = remind(number).detached() => done,
        () = note(&format!("order {number} is delivered")) => Ok(()),
    }
}

#[workflow]
async fn remind(number: u32) -> Result<()> {
    sleep(Duration::from_millis(300)).await;
    note(&format!("please review order {number}")).await;
    Ok(())
}
// ANCHOR_END: detached

#[tokio::main]
async fn main() -> Result<()> {
    let folder = std::env::temp_dir().join(format!("composer-children-{}", std::process::id()));
    let composer = Composer::connect(format!("sqlite:{}", folder.join("composer.db").display())).await?;
    let worker = composer
        .worker()
        .workflows::<(order, parcel, deliver, remind)>()
        .activities::<(pick, note)>()
        .start()
        .await?;

    let parcels = vec![vec!["lamp".to_owned(), "bulb".to_owned()], vec!["unicorn".to_owned()]];
    let run = composer.start(order(7, parcels)).await?;
    for line in run.result().await?? {
        println!("{line}");
    }
    // ANCHOR: family
    let children = RunFilter { parent: Some(run.run_id()), ..RunFilter::default() };
    let mut ids: Vec<_> =
        composer.list(&children, None).await?.into_iter().map(|row| row.workflow_id).collect();
    ids.sort_by_key(ToString::to_string);
    for id in ids {
        println!("{id}");
    }
    // ANCHOR_END: family

    let delivered = composer.start(deliver(7)).await?;
    delivered.result().await??;
    let reminders = RunFilter { parent: Some(delivered.run_id()), ..RunFilter::default() };
    for row in composer.list(&reminders, None).await? {
        composer.get::<remind>(row.workflow_id.as_str()).await?.result().await??;
    }

    worker.shutdown().await?;
    std::fs::remove_dir_all(folder)?;
    Ok(())
}
