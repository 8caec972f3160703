//! One workflow, `changing`, as several builds of a program have it.
//!
//! In each it waits for the signal `go` between two steps, so that a run can be caught there and replayed by another
//! build.

use composer_runtime::WorkerBuilder;
use composer_sdk::{options::Retry, prelude::*};
use serde_json::json;

use super::{Ledger, workflow::GO};

macro_rules! activities {
    ($($(#[$attr:meta])* $name:ident $(as $effect:literal)?;)*) => { $(
        #[doc = concat!("The effect `", stringify!($name), "`.")]
        $(#[$attr])*
        pub async fn $name(#[state] ledger: Ledger, value: u32) -> Result<u32> {
            ledger.effect(activities!(@effect $name $($effect)?), &json!(value)).await?;
            Ok(value)
        }
    )* };
    (@effect $name:ident) => { stringify!($name) };
    (@effect $name:ident $effect:literal) => { $effect };
}

activities! {
    #[activity] first;
    #[activity] second;
    #[activity] third;
    #[activity] fourth;
    #[activity] inserted;
    #[activity] second_by_another_name;
    #[activity(name = "second")] second_renamed as "second";
}

/// A workflow id's worth of bodies: every one of them is `changing`.
macro_rules! variants {
    ($($(#[$doc:meta])* $name:ident $body:block)*) => {
        $(
            $(#[$doc])*
            #[workflow(name = "changing")]
            pub async fn $name() -> Result<u32> $body
        )*

        /// The names of all variants.
        pub const ALL: &[&str] = &[$(stringify!($name)),*];

        fn workflow(worker: WorkerBuilder, name: &str) -> WorkerBuilder {
            match name {
                $(stringify!($name) => worker.workflow::<$name>(),)*
                other => panic!("`{other}` is no variant; there are {ALL:?}"),
            }
        }
    };
}

variants! {
    /// The build that most runs begin with.
    v1 {
        let so_far = first(1).await? + second(2).await?;
        GO.recv().await;
        Ok(so_far + third(3).await?)
    }
    /// A step before a recorded one.
    with_a_step_inserted {
        let so_far = first(1).await? + inserted(10).await? + second(2).await?;
        GO.recv().await;
        Ok(so_far + third(3).await?)
    }
    /// A recorded step under another name.
    with_a_step_renamed {
        let so_far = first(1).await? + second_by_another_name(2).await?;
        GO.recv().await;
        Ok(so_far + third(3).await?)
    }
    /// The same, with the old name in the attribute.
    with_a_step_renamed_and_named {
        let so_far = first(1).await? + second_renamed(2).await?;
        GO.recv().await;
        Ok(so_far + third(3).await?)
    }
    /// Two recorded steps in the other order.
    with_steps_swapped {
        let so_far = second(2).await? + first(1).await?;
        GO.recv().await;
        Ok(so_far + third(3).await?)
    }
    /// A recorded activity is a timer now.
    with_a_timer_instead {
        let so_far = first(1).await?;
        sleep(Duration::from_millis(1)).await;
        GO.recv().await;
        Ok(so_far + third(3).await?)
    }
    /// A recorded step is gone, and others follow.
    with_a_step_removed {
        let so_far = first(1).await?;
        GO.recv().await;
        Ok(so_far + third(3).await?)
    }
    /// It returns while the journal has more.
    that_returns_early {
        first(1).await
    }
    /// A recorded step with another argument.
    with_another_argument {
        let so_far = first(1).await? + second(20).await?;
        GO.recv().await;
        Ok(so_far + third(3).await?)
    }
    /// A step after the last one.
    with_a_step_appended {
        let so_far = first(1).await? + second(2).await?;
        GO.recv().await;
        Ok(so_far + third(3).await? + fourth(4).await?)
    }
    /// The same steps, carried out in another manner.
    with_other_options {
        let so_far = first(1).retry(Retry::NONE).await? + second(2).timeout(Duration::from_secs(7)).await?;
        GO.recv().await;
        Ok(so_far + third(3).retry(Retry::DEFAULT.max_attempts(3)).await?)
    }
}

/// Registers one of them, and all activities.
///
/// # Panics
/// When there is none of that name.
pub fn register(worker: WorkerBuilder, name: &str) -> WorkerBuilder {
    let worker = worker
        .activity::<first>()
        .activity::<third>()
        .activity::<fourth>()
        .activity::<inserted>()
        .activity::<second_by_another_name>();
    // Two of one name would be refused.
    let worker = match name {
        "with_a_step_renamed_and_named" => worker.activity::<second_renamed>(),
        _ => worker.activity::<second>(),
    };
    workflow(worker, name)
}
