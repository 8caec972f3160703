//! For `tracing-subscriber`: what workflow code says is heard once.

use composer_sdk::workflow::is_replaying;
use tracing::{Event, Metadata, Subscriber};
use tracing_subscriber::{
    Layer,
    layer::{Context, Filter},
};

/// Drops the events that workflow code emits while it does what it has done before: each line once, and not again
/// whenever a worker takes the run up.
///
/// As a layer, for everything that is in the subscriber with it:
///
/// ```
/// use composer_runtime::QuietOnReplay;
/// use tracing_subscriber::prelude::*;
///
/// # let the_layers_that_print = tracing_subscriber::layer::Identity::new();
/// let subscriber = tracing_subscriber::registry().with(the_layers_that_print).with(QuietOnReplay);
/// tracing::subscriber::set_global_default(subscriber)?;
/// # Ok::<(), tracing::subscriber::SetGlobalDefaultError>(())
/// ```
///
/// or as the filter of one layer, `the_layer.with_filter(QuietOnReplay)`. Spans are left alone. What activities and the
/// engine itself say is never dropped. What a line may miss is said at [`composer_sdk::workflow::log`], which needs no
/// layer.
#[derive(Debug, Clone, Copy, Default)]
pub struct QuietOnReplay;

impl<S: Subscriber> Layer<S> for QuietOnReplay {
    fn event_enabled(&self, _: &Event<'_>, _: Context<'_, S>) -> bool {
        !is_replaying()
    }
}

impl<S> Filter<S> for QuietOnReplay {
    fn enabled(&self, _: &Metadata<'_>, _: &Context<'_, S>) -> bool {
        true
    }

    fn event_enabled(&self, _: &Event<'_>, _: &Context<'_, S>) -> bool {
        !is_replaying()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::{
        Arc,
        atomic::{AtomicU32, Ordering},
    };

    use composer_sdk::{
        id::{RunId, Timestamp},
        payload::Payload,
        prelude::*,
        replay::{Machine, Start},
        workflow::WorkflowEntry,
    };
    use tracing_subscriber::prelude::*;

    use super::*;

    #[workflow]
    async fn talks() {
        tracing::warn!("begun");
        sleep(Duration::from_secs(1)).await;
    }

    /// Counts what it hears.
    #[derive(Clone, Default)]
    struct Heard(Arc<AtomicU32>);

    impl<S: Subscriber> Layer<S> for Heard {
        fn on_event(&self, _: &Event<'_>, _: Context<'_, S>) {
            self.0.fetch_add(1, Ordering::SeqCst);
        }
    }

    impl Heard {
        fn so_far(&self) -> u32 {
            self.0.load(Ordering::SeqCst)
        }
    }

    /// The workflow for the first time, or again; and a line of somebody else's.
    fn live(again: bool) {
        let run_id = RunId::new(Timestamp::from_micros(1));
        let machine = Machine::new(Start {
            run_id,
            seed: run_id,
            workflow_id: run_id.into(),
            workflow: WorkflowEntry::of::<talks>(),
            input: Payload::from(b"[]".as_slice()),
            started_at: Timestamp::from_micros(1),
            alarm: Arc::new(|| {}),
        });
        let mut machine = if again { machine.resumed(0) } else { machine };
        let _ = machine.drive();
        tracing::warn!("somebody else");
    }

    #[test]
    fn a_layer_of_it_makes_all_others_hear_each_line_once() {
        for beneath in [true, false] {
            let heard = Heard::default();
            let registry = tracing_subscriber::registry();
            let subscriber: Box<dyn Subscriber + Send + Sync> = match beneath {
                true => Box::new(registry.with(QuietOnReplay).with(heard.clone())),
                false => Box::new(registry.with(heard.clone()).with(QuietOnReplay)),
            };
            tracing::subscriber::with_default(subscriber, || {
                live(false);
                assert_eq!(heard.so_far(), 2);
                live(true);
            });
            assert_eq!(heard.so_far(), 3);
        }
    }

    #[test]
    fn as_a_filter_it_is_about_its_own_layer_alone() {
        let (quiet, all) = (Heard::default(), Heard::default());
        let layers = quiet.clone().with_filter(QuietOnReplay).and_then(all.clone());
        tracing::subscriber::with_default(tracing_subscriber::registry().with(layers), || {
            live(false);
            live(true);
        });
        assert_eq!((quiet.so_far(), all.so_far()), (3, 4));
    }
}
