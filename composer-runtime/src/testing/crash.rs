//! When the process of a test dies, and the check that it does not matter when.

use std::fmt::Debug;

use super::{Driving, Journal, Testing};

/// When the process dies, or forgets.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) enum Plan {
    /// Never.
    #[default]
    Never,
    /// Before its n-th journal write: what that would have said is lost.
    BeforeWrite(usize),
    /// After its n-th journal write, before anybody in the process has heard of it.
    AfterWrite(usize),
    /// After each journal write.
    AfterEveryWrite,
    /// It lives, but drops each run from memory after each journal write, as soon as nothing of it is under way.
    Evict,
}

impl Plan {
    pub(super) fn dies_before(self, write: usize) -> bool {
        self == Self::BeforeWrite(write)
    }

    pub(super) fn dies_after(self, write: usize) -> bool {
        self == Self::AfterEveryWrite || self == Self::AfterWrite(write)
    }

    /// In words, after a comma.
    pub(super) fn words(self) -> String {
        match self {
            Self::Never => String::new(),
            Self::BeforeWrite(write) => format!(", with a crash before journal write {write}"),
            Self::AfterWrite(write) => format!(", with a crash after journal write {write}"),
            Self::AfterEveryWrite => ", with a crash after every journal write".into(),
            Self::Evict => ", with runs that leave memory after every step".into(),
        }
    }
}

/// Runs the scenario as it is, then with a crash before and after each of its journal writes, and with runs that leave
/// memory after every step. Each time the result and the journals must be the same. Returns the result.
///
/// An activity whose outcome was lost is done again, as in production; so a stand-in that counts its calls counts more
/// of them. What depends on an attempt belongs into [`Testing::fail`].
///
/// ```
/// # use composer_runtime::testing::{self, Error};
/// # use composer_sdk::prelude::*;
/// #[activity]
/// async fn double(n: u32) -> u32 {
///     n * 2
/// }
///
/// #[workflow]
/// async fn quadruple(n: u32) -> u32 {
///     sleep(Duration::from_secs(60)).await;
///     double(double(n).await).await
/// }
///
/// let n = testing::crash_everywhere(async |env| {
///     let env = env.activity::<double>();
///     env.start(quadruple(3))?.result().await
/// });
/// assert_eq!(n.wait().unwrap(), 12);
/// ```
///
/// # Panics
/// When a result or a journal differs, with both and the place of the crash.
pub fn crash_everywhere<'a, T: PartialEq + Debug + 'a>(
    scenario: impl AsyncFn(Testing) -> T + 'a,
) -> Driving<'a, T> {
    // Its runtime, if it needs one, is that of all.
    let first = Testing::new();
    let world = first.world();
    Driving::new(world.clone(), async move {
        let expected = (scenario(first).await, world.journals());
        let writes = world.writes();
        let crashes = (1..=writes).flat_map(|write| [Plan::BeforeWrite(write), Plan::AfterWrite(write)]);
        for plan in [Plan::Evict, Plan::AfterEveryWrite].into_iter().chain(crashes) {
            let env = Testing::new().with_plan(plan);
            let world = env.world();
            let found = (scenario(env).await, world.journals());
            assert!(found == expected, "{}", difference(plan, writes, &expected, &found));
        }
        expected.0
    })
}

fn difference<T: Debug>(
    plan: Plan,
    writes: usize,
    expected: &(T, Vec<Journal>),
    found: &(T, Vec<Journal>),
) -> String {
    format!(
        "the scenario comes to something else{} (of {writes}).\nwithout: {:#?}\n{}with it: {:#?}\n{}",
        plan.words(),
        expected.0,
        shown(&expected.1),
        found.0,
        shown(&found.1)
    )
}

fn shown(journals: &[Journal]) -> String {
    journals.iter().map(|journal| format!("{journal:#?}\n")).collect()
}
