//! What lies beside the database in `<file>.live/`: who lives, and that something happened.
//!
//! * `<session>.lock` is locked (`flock`) by the process that owns the session for as long as it lives; the system
//!   lets go of it when the process dies. It appears under its name already locked, is never used for another
//!   session, and is removed only by whoever declared the session dead. It is never the database's own file, whose
//!   locks SQLite keeps in a way that a second `open` would break.
//! * `runs`, `inbox`, `ends` grow by a byte at each notification; who listens compares their lengths, 50 times a
//!   second. A hint costs a write of one byte without a sync, and no lock.
//!
//! All of it is a hint: without the folder the leases decide, and polling finds what happened.

use std::{
    fs::{self, File, OpenOptions, TryLockError},
    io::Write,
    path::{Path, PathBuf},
    time::Duration,
};

use async_trait::async_trait;
use tokio::sync::watch;

use super::super::{ListenConn, Result, SessionId, StoreError, Topic};

/// How often a listener looks at what other processes did.
const LOOK_EVERY: Duration = Duration::from_millis(20);

/// A hint file that has grown to this size starts again: any change of its length is a hint.
const HINT_BYTES: u64 = 1 << 20;

const TOPICS: [Topic; 4] = [Topic::Runs, Topic::Inbox, Topic::Ends, Topic::Orders];

/// The folder, and the news of this process.
#[derive(Debug)]
pub(super) struct Live {
    folder: PathBuf,
    news: watch::Sender<u64>,
}

/// A session's lock, for as long as it is not dropped.
#[derive(Debug)]
pub(super) struct Held {
    _lock: Option<File>,
}

impl Held {
    /// For a listener without a session.
    pub(super) fn nothing() -> Self {
        Self { _lock: None }
    }
}

impl Live {
    /// The folder that belongs to a database file.
    pub(super) fn beside(file: &Path) -> Self {
        let mut folder = file.as_os_str().to_owned();
        folder.push(".live");
        Self { folder: folder.into(), news: watch::channel(0).0 }
    }

    /// Takes a session's lock. The file is locked before it gets its name, so nobody ever sees it free.
    pub(super) fn hold(&self, session: SessionId) -> Result<Held> {
        self.try_hold(session).map(|lock| Held { _lock: Some(lock) }).map_err(|e| StoreError::Unavailable {
            message: format!(
                "the lock file of session {} in {} cannot be taken: {e}",
                session.0,
                self.folder.display()
            ),
            maybe_committed: false,
        })
    }

    fn try_hold(&self, session: SessionId) -> std::io::Result<File> {
        fs::create_dir_all(&self.folder)?;
        let name = self.lock_file(session);
        let unnamed = name.with_extension(format!("{}.new", fastrand::u64(..)));
        let lock = File::create_new(&unnamed)?;
        lock.lock()?;
        fs::rename(&unnamed, &name)?;
        Ok(lock)
    }

    /// Whether a session's lock is there and nobody holds it.
    pub(super) fn is_free(&self, session: SessionId) -> bool {
        let Ok(lock) = File::open(self.lock_file(session)) else { return false };
        match lock.try_lock() {
            Ok(()) => true,
            Err(TryLockError::WouldBlock | TryLockError::Error(_)) => false,
        }
    }

    /// Removes the lock file of a session that the caller declared dead.
    pub(super) fn forget(&self, session: SessionId) {
        // Missing is fine: a session that never listened had none.
        let _ = fs::remove_file(self.lock_file(session));
    }

    /// Tells listeners, here and in other processes.
    pub(super) fn notify(&self, topics: &[Topic]) {
        for topic in topics {
            if let Err(e) = self.touch(*topic) {
                tracing::debug!(error = %e, folder = %self.folder.display(), "a hint could not be left");
            }
        }
        self.news.send_modify(|news| *news += 1);
    }

    fn touch(&self, topic: Topic) -> std::io::Result<()> {
        let path = self.hint_file(topic);
        let open = || OpenOptions::new().append(true).create(true).open(&path);
        let mut hint = open().or_else(|_| fs::create_dir_all(&self.folder).and_then(|()| open()))?;
        if hint.metadata()?.len() >= HINT_BYTES {
            hint.set_len(0)?;
        }
        hint.write_all(b".")
    }

    /// A listener that hears what happens from now on.
    pub(super) fn listen(&self, held: Held) -> Listener {
        Listener {
            hints: TOPICS.map(|topic| Hint {
                topic,
                path: self.hint_file(topic),
                seen: length(&self.hint_file(topic)),
            }),
            news: self.news.subscribe(),
            _held: held,
        }
    }

    fn lock_file(&self, session: SessionId) -> PathBuf {
        self.folder.join(format!("{}.lock", session.0))
    }

    fn hint_file(&self, topic: Topic) -> PathBuf {
        self.folder.join(match topic {
            Topic::Runs => "runs",
            Topic::Inbox => "inbox",
            Topic::Ends => "ends",
            Topic::Orders => "orders",
        })
    }
}

/// Hears what was notified, and holds its session's lock.
pub(super) struct Listener {
    hints: [Hint; 4],
    news: watch::Receiver<u64>,
    _held: Held,
}

struct Hint {
    topic: Topic,
    path: PathBuf,
    seen: u64,
}

impl Hint {
    /// Whether the file's length changed since the last look.
    fn has_changed(&mut self) -> bool {
        let length = length(&self.path);
        std::mem::replace(&mut self.seen, length) != length
    }
}

fn length(path: &Path) -> u64 {
    fs::metadata(path).map_or(0, |metadata| metadata.len())
}

#[async_trait]
impl ListenConn for Listener {
    async fn next(&mut self) -> Result<Topic> {
        loop {
            if let Some(hint) =
                self.hints.iter_mut().find_map(|hint| hint.has_changed().then_some(hint.topic))
            {
                return Ok(hint);
            }
            // News of this process wake at once; without a sender left there are none, and time goes on.
            let news = tokio::time::timeout(LOOK_EVERY, self.news.changed()).await;
            if let Ok(Err(_)) = news {
                tokio::time::sleep(LOOK_EVERY).await;
            }
        }
    }
}
