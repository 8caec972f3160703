//! Lists of definitions, as tuples: `.activities::<(charge_card, refund)>()`.

use composer_sdk::{Activity, Workflow, activity::ActivityEntry, workflow::WorkflowEntry};

/// Up to sixteen activities, for [`WorkerBuilder::activities`](crate::WorkerBuilder::activities).
pub trait Activities {
    /// What is registered.
    #[doc(hidden)]
    fn entries() -> Vec<ActivityEntry>;
}

/// Up to sixteen workflows, for [`WorkerBuilder::workflows`](crate::WorkerBuilder::workflows).
pub trait Workflows {
    /// What is registered.
    #[doc(hidden)]
    fn entries() -> Vec<WorkflowEntry>;
}

macro_rules! lists {
    ($first:ident $($rest:ident)*) => {
        impl<$first: Activity, $($rest: Activity),*> Activities for ($first, $($rest,)*) {
            fn entries() -> Vec<ActivityEntry> {
                vec![ActivityEntry::of::<$first>(), $(ActivityEntry::of::<$rest>()),*]
            }
        }
        impl<$first: Workflow, $($rest: Workflow),*> Workflows for ($first, $($rest,)*) {
            fn entries() -> Vec<WorkflowEntry> {
                vec![WorkflowEntry::of::<$first>(), $(WorkflowEntry::of::<$rest>()),*]
            }
        }
        lists! { $($rest)* }
    };
    () => {};
}
lists! { A B C D E F G H I J K L M N O P }
