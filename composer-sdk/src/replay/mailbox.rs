//! Signals between their arrival and the wait that takes them.
//!
//! First come, first served, by name: a signal goes to the wait on its name that was polled first, or stays until
//! there is one. A wait that is dropped before it looked gives its signal back, in its place in the line.

use std::{
    collections::{BTreeMap, HashMap},
    task::Waker,
};

use crate::payload::Payload;

/// The signals of one run.
#[derive(Default)]
pub(super) struct Mailboxes {
    by_name: HashMap<String, Mailbox>,
    /// The next wait's ticket.
    next: u64,
    waiters: usize,
}

#[derive(Default)]
struct Mailbox {
    /// By their place in the journal.
    values: BTreeMap<u32, Payload>,
    /// The waits without a value, first come first, by ticket.
    waiting: BTreeMap<u64, Option<Waker>>,
    /// The values that were given to a wait which has not looked yet.
    given: HashMap<u64, (u32, Payload)>,
}

impl Mailboxes {
    /// Whether any wait is without a value.
    pub(super) fn has_waiters(&self) -> bool {
        self.waiters > 0
    }

    /// The names on which any wait is without a value, sorted.
    pub(super) fn awaited(&self) -> Vec<String> {
        let waiting = self.by_name.iter().filter(|(_, mailbox)| !mailbox.waiting.is_empty());
        let mut names: Vec<String> = waiting.map(|(name, _)| name.clone()).collect();
        names.sort_unstable();
        names
    }

    /// The wakers of all waits.
    pub(super) fn take_wakers(&mut self) -> impl Iterator<Item = Waker> {
        self.by_name.values_mut().flat_map(|mailbox| mailbox.waiting.values_mut().filter_map(Option::take))
    }

    /// A signal arrived at that place in the journal; returns whom to wake.
    pub(super) fn arrive(&mut self, name: &str, seq: u32, value: Payload) -> Option<Waker> {
        let mailbox = self.of(name);
        let Some((ticket, waker)) = mailbox.waiting.pop_first() else {
            mailbox.values.insert(seq, value);
            return None;
        };
        mailbox.given.insert(ticket, (seq, value));
        self.waiters -= 1;
        waker
    }

    /// The first poll of a wait: a value, or a ticket.
    pub(super) fn receive(&mut self, name: &str, waker: &mut Option<Waker>) -> Result<Payload, u64> {
        let ticket = self.next;
        let mailbox = self.of(name);
        if let Some((_, value)) = mailbox.values.pop_first() {
            return Ok(value);
        }
        mailbox.waiting.insert(ticket, waker.take());
        self.next += 1;
        self.waiters += 1;
        Err(ticket)
    }

    /// Each further poll: the value that was given to the ticket.
    pub(super) fn given(&mut self, name: &str, ticket: u64) -> Option<Payload> {
        self.of(name).given.remove(&ticket).map(|(_, value)| value)
    }

    /// Takes the waker of a wait out, or puts one in.
    pub(super) fn swap_waker(&mut self, name: &str, ticket: u64, waker: Option<Waker>) -> Option<Waker> {
        let waiting = self.of(name).waiting.get_mut(&ticket)?;
        std::mem::replace(waiting, waker)
    }

    /// A wait was dropped. Returns its own waker (to be dropped outside the lock) and whom to wake.
    pub(super) fn leave(&mut self, name: &str, ticket: u64) -> (Option<Waker>, Option<Waker>) {
        let mailbox = self.of(name);
        if let Some(own) = mailbox.waiting.remove(&ticket) {
            self.waiters -= 1;
            return (own, None);
        }
        match mailbox.given.remove(&ticket) {
            Some((seq, value)) => (None, self.arrive(name, seq, value)),
            None => (None, None),
        }
    }

    /// The places in the journal of what nobody took, in order.
    pub(super) fn left(&self) -> Vec<u32> {
        self.left_values().into_keys().collect()
    }

    /// What nobody took, by its place in the journal: name and value.
    pub(super) fn left_values(&self) -> BTreeMap<u32, (&str, &Payload)> {
        let left = self.by_name.iter().flat_map(|(name, mailbox)| {
            let given = mailbox.given.values().map(|(seq, value)| (*seq, value));
            let values = mailbox.values.iter().map(|(seq, value)| (*seq, value)).chain(given);
            values.map(|(seq, value)| (seq, (name.as_str(), value)))
        });
        left.collect()
    }

    fn of(&mut self, name: &str) -> &mut Mailbox {
        if !self.by_name.contains_key(name) {
            self.by_name.insert(name.to_owned(), Mailbox::default());
        }
        self.by_name.get_mut(name).expect("invariant: it was just put there")
    }
}
