//! The structure of a workflow: the code of the book's chapter about it, as a program.
//!
//! ```text
//! cargo run --example structure
//! ```

use std::sync::{
    Arc,
    atomic::{AtomicU32, Ordering},
};

use composer_runtime::Composer;
use composer_sdk::{
    prelude::*,
    workflow::{continue_as_new, info, map, poll_until, spawn},
};

#[activity]
async fn resize(picture: u32) -> Result<u32> {
    if picture == 13 {
        return Err(Error::permanent("picture 13 is broken"));
    }
    Ok(picture * 10)
}

#[activity]
async fn publish(pictures: Vec<u32>) -> Result<String> {
    Ok(format!("album of {}", pictures.len()))
}

#[activity]
async fn note(words: String) {
    println!("{words}");
}

#[activity]
async fn is_public(#[state] looks: Looks, album: &str) -> Result<bool> {
    println!("is the {album} public?");
    Ok(looks.0.fetch_add(1, Ordering::Relaxed) >= 2)
}

/// How often somebody has looked.
#[derive(Debug, Clone, Default)]
struct Looks(Arc<AtomicU32>);

// ANCHOR: at_once
#[workflow]
async fn album(pictures: Vec<u32>) -> Result<String> {
    // A branch that goes on beside the body, and may be awaited later.
    let told = spawn(note(format!("{} pictures have come", pictures.len())));

    // The same for each, at most four at a time; one broken picture is put up with.
    let resized = map(pictures, resize).limit(4).tolerate(1).await?;
    for (place, error) in &resized.errors {
        note(format!("picture no. {place} is left out: {error}")).await;
    }

    let album = publish(resized.into_values()).await?;
    told.await;
    Ok(album)
}
// ANCHOR_END: at_once

// ANCHOR: poll
#[workflow]
async fn announce(album: String) -> Result<String> {
    let public = poll_until(Duration::from_millis(200), || is_public(&album));
    match public.for_at_most(Duration::days(1)).await {
        Ok(found) => found.map(|()| "announced".into()),
        Err(not_yet) => {
            note(not_yet.to_string()).await;
            Ok("given up".into())
        }
    }
}
// ANCHOR_END: poll

// ANCHOR: again
static PICTURE: Signal<u32> = Signal::new("picture");

#[workflow]
async fn gallery(mut shown: u32) -> Result<u32> {
    // A hundred pictures a journal; here, two.
    for _ in 0..2 {
        match PICTURE.recv().await {
            0 => return Ok(shown),
            picture => shown += u32::from(resize(picture).await.is_ok()),
        }
    }
    note(format!("generation {} has shown {shown} in all", info().generation)).await;
    continue_as_new(gallery(shown)).await
}
// ANCHOR_END: again

#[tokio::main]
async fn main() -> Result<()> {
    let folder = std::env::temp_dir().join(format!("composer-structure-{}", std::process::id()));
    let composer = Composer::connect(format!("sqlite:{}", folder.join("composer.db").display())).await?;
    let worker = composer
        .worker()
        .workflows::<(album, announce, gallery)>()
        .activities::<(resize, publish, note, is_public)>()
        .state(Looks::default())
        .start()
        .await?;

    let made = composer.start(album((11..16).collect())).await?.result().await??;
    println!("{made}");
    println!("{}", composer.start(announce(made)).await?.result().await??);

    let run = composer.start(gallery(0)).await?;
    for picture in [1, 2, 3, 13, 5, 0] {
        run.signal(&PICTURE, picture).await?;
    }
    println!("{} shown", run.result().await??);

    worker.shutdown().await?;
    std::fs::remove_dir_all(folder)?;
    Ok(())
}
