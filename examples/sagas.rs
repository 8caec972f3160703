//! Sagas and cancellation: the code of the book's chapter about them, as a program.
//!
//! ```text
//! cargo run --example sagas
//! ```

use std::sync::{Arc, Mutex};

use composer_runtime::Composer;
use composer_sdk::{
    activity,
    prelude::*,
    saga,
    workflow::{cancelled, shield},
};

/// The world outside, which remembers what was done to it.
#[derive(Debug, Clone, Default)]
struct World(Arc<Mutex<Vec<String>>>);

impl World {
    fn did(&self, what: String) {
        self.0.lock().expect("nothing panics under this lock").push(what);
    }
    fn take(&self) -> Vec<String> {
        std::mem::take(&mut *self.0.lock().expect("nothing panics under this lock"))
    }
}

#[activity]
async fn hold_seat(#[state] world: &World, seat: u32) -> Result<u32> {
    world.did(format!("hold seat {seat}"));
    if seat == 13 {
        return Err(Error::permanent("there is no seat 13"));
    }
    Ok(seat)
}

#[activity]
async fn charge(#[state] world: &World, cents: u64) -> Result<()> {
    world.did(format!("charge {cents}"));
    if cents > 100_000 { Err(Error::permanent("the limit of the card is 1,000")) } else { Ok(()) }
}

// ANCHOR: undo
/// Undoing is idempotent, and does nothing where there is nothing to undo.
#[activity(retry(max_attempts = 50, max = "1h"))]
async fn free_seat(#[state] world: &World, seat: u32) -> Result<()> {
    world.did(format!("free seat {seat}"));
    Ok(())
}
// ANCHOR_END: undo

#[activity]
async fn refund(#[state] world: &World, cents: u64) -> Result<()> {
    world.did(format!("refund {cents}"));
    Ok(())
}

#[activity]
async fn print_ticket(#[state] world: &World, seat: u32) -> Result<()> {
    world.did(format!("print the ticket of seat {seat}"));
    Ok(())
}

// ANCHOR: saga
#[workflow]
async fn book(seat: u32, cents: u64) -> Result<()> {
    compensate(free_seat(seat)); // recorded before the step that it undoes
    hold_seat(seat).await?;
    compensate(refund(cents));
    charge(cents).await?;
    saga::commit(); // the customer has paid: from here on there is nothing to undo
    print_ticket(seat).await
}
// ANCHOR_END: saga

// ANCHOR: scope
#[workflow]
async fn book_any(seats: Vec<u32>, cents: u64) -> Result<Option<u32>> {
    for seat in seats {
        let booked = saga::scope(async {
            compensate(free_seat(seat));
            hold_seat(seat).await?;
            charge(cents).await
        });
        // An error comes out here once its part is undone.
        if booked.await.is_ok() {
            return Ok(Some(seat));
        }
    }
    Ok(None)
}
// ANCHOR_END: scope

#[activity]
async fn make_void(#[state] world: &World, seat: u32) -> Result<()> {
    world.did(format!("make the ticket of seat {seat} void"));
    Ok(())
}

// ANCHOR: shield
static FETCHED: Signal<()> = Signal::new("fetched");

#[workflow]
async fn at_the_counter(seat: u32, cents: u64) -> Result<()> {
    compensate(refund(cents));
    charge(cents).await?;
    // A ticket that is printed is fetched or made void, whatever comes.
    shield(async {
        print_ticket(seat).await?;
        select! {
            () = FETCHED.recv() => Ok(()),
            () = cancelled() => make_void(seat).await,
        }
    })
    .await
}
// ANCHOR_END: shield

#[tokio::main]
async fn main() -> Result<()> {
    let folder = std::env::temp_dir().join(format!("composer-sagas-{}", std::process::id()));
    let composer = Composer::connect(format!("sqlite:{}", folder.join("composer.db").display())).await?;
    let world = World::default();
    let worker = composer
        .worker()
        .workflows::<(book, book_any, at_the_counter)>()
        .activities::<(hold_seat, charge, free_seat, refund, print_ticket, make_void)>()
        .state(world.clone())
        .start()
        .await?;

    composer.start(book(7, 4_900)).await?.result().await??;
    println!("booked: {}", world.take().join(", "));

    let failed = composer.start(book(8, 490_000)).await?;
    println!("{:#}", failed.result().await?.expect_err("nobody has such a card"));
    println!("undone: {}", world.take().join(", "));

    let any = composer.start(book_any(vec![13, 14], 4_900)).await?;
    println!("seat {:?}: {}", any.result().await??, world.take().join(", "));

    // ANCHOR: cancel
    let waiting = composer.start(at_the_counter(9, 4_900)).await?;
    while world.0.lock().expect("nothing panics under this lock").len() < 2 {
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    waiting.cancel("the customer stays at home").await?;
    println!("{:#}", waiting.result().await?.expect_err("it was cancelled"));
    // ANCHOR_END: cancel
    println!("undone: {}", world.take().join(", "));

    worker.shutdown().await?;
    std::fs::remove_dir_all(folder)?;
    Ok(())
}
