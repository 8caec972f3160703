//! `select!`, `join!` and `try_join!`: waiting for several things at once, in an order that a replay repeats.
//!
//! All three poll their branches in source order, always. That is what makes them safe in a workflow: the first run
//! and every replay ask for the same steps in the same order, and of two branches that are ready at once the earlier
//! one wins. They are `macro_rules!` over [`IntoFuture`], know nothing of the engine, and work outside workflows, too.
//!
//! The arms of `select!` stand outside what is polled, so `?`, `return`, `break` and `continue` in them mean what they
//! mean around it, and by the time an arm runs, the branches that lost are dropped.
//!
//! `(@ "words")` is what `#[workflow]` asks a bare macro, to be sure that it is one of these and not another crate's of
//! the same name: that one does not know the form, and the compiler shows the words.

use std::{
    future::{Future, IntoFuture},
    pin::Pin,
    task::{Context, Poll},
};

use futures::future::{MaybeDone, TryMaybeDone, maybe_done, try_maybe_done};

/// Which branch of a `select!` was ready first. Places without a branch hold [`Never`].
#[doc(hidden)]
#[allow(missing_docs)]
pub enum Out<A, B, C, D, E, F, G, H, I, J, K, L, M, N, O, P> {
    A(A),
    B(B),
    C(C),
    D(D),
    E(E),
    F(F),
    G(G),
    H(H),
    I(I),
    J(J),
    K(K),
    L(L),
    M(M),
    N(N),
    O(O),
    P(P),
}

/// The value of a branch that is not there.
#[doc(hidden)]
pub enum Never {}

/// A branch of `join!`: keeps its value until all have one.
#[doc(hidden)]
pub fn branch<F: IntoFuture>(future: F) -> MaybeDone<F::IntoFuture> {
    maybe_done(future.into_future())
}

/// A branch of `try_join!`.
#[doc(hidden)]
pub fn try_branch<F, T, E>(future: F) -> TryMaybeDone<F::IntoFuture>
where
    F: IntoFuture<Output = Result<T, E>>,
{
    try_maybe_done(future.into_future())
}

/// Polls one branch, by a path that no import of the user's can shadow.
#[doc(hidden)]
pub fn poll<F: Future + ?Sized>(future: &mut Pin<&mut F>, task: &mut Context<'_>) -> Poll<F::Output> {
    future.as_mut().poll(task)
}

/// Waits for the first of several futures, and runs the code beside it.
///
/// ```
/// use composer_sdk::select;
/// use std::future::{pending, ready};
///
/// # futures::executor::block_on(async {
/// let answer = select! {
///     n = ready(42) => n,
///     () = pending() => 0,
/// };
/// assert_eq!(answer, 42);
/// # });
/// ```
///
/// Each branch is `pattern = future => code`. There are 1 to 16 of them.
///
/// * Branches are looked at **in source order**: of two that are ready, the earlier one wins. A replay decides the
///   same, which is why there is no unordered form.
/// * A future is anything that can be awaited: a call, a timer, `APPROVAL.recv()`, an `async` block, `&mut call`.
/// * The code runs after the other branches are dropped. A call that was asked for and lost is told to stop; to keep
///   it, make it before and pass `&mut call`.
/// * `?`, `return`, `break` and `continue` in the code act on what is around the `select!`.
/// * The pattern must match every value (`result = call => match result { … }`): a branch that is silently out of the
///   race would be one more thing to remember.
///
/// # Cancel safety
/// If the future around it is dropped, all branches are.
#[macro_export]
macro_rules! select {
    (@ $words:literal) => { () };
    () => { ::core::compile_error!("`select!` needs a branch: `pattern = future => code`") };
    (biased; $($rest:tt)*) => {
        ::core::compile_error!("`select!` always looks at its branches in source order: remove `biased;`")
    };
    ($($branches:tt)+) => { $crate::__select!(@read [] $($branches)+) };
}

#[doc(hidden)]
#[macro_export]
macro_rules! __select {
    // Reads one branch after the other, into `(pattern, future, code)`.
    (@read [$($read:tt)+]) => {
        $crate::__select!(@place [$($read)+] [] [A a B b C c D d E e F f G g H h I i J j K k L l M m N n O o P p])
    };
    (@read [$($read:tt)*] else $($rest:tt)*) => {
        ::core::compile_error!("`select!` has no `else`: every branch stays in the race until one is ready")
    };
    (@read [$($read:tt)*] $pat:pat = $future:expr, if $($rest:tt)*) => {
        ::core::compile_error!(
            "`select!` has no `if` guards: decide before it what to wait for; `std::future::pending()` never wins"
        )
    };
    (@read [$($read:tt)*] $pat:pat if $($rest:tt)*) => {
        ::core::compile_error!("`select!` has no `if` guards: take the value and decide in the code of the branch")
    };
    (@read [$($read:tt)*] $pat:pat = $future:expr => $code:block, $($rest:tt)*) => {
        $crate::__select!(@read [$($read)* ($pat, $future, $code)] $($rest)*)
    };
    (@read [$($read:tt)*] $pat:pat = $future:expr => $code:block $($rest:tt)*) => {
        $crate::__select!(@read [$($read)* ($pat, $future, $code)] $($rest)*)
    };
    (@read [$($read:tt)*] $pat:pat = $future:expr => $code:expr, $($rest:tt)*) => {
        $crate::__select!(@read [$($read)* ($pat, $future, $code)] $($rest)*)
    };
    (@read [$($read:tt)*] $pat:pat = $future:expr => $code:expr) => {
        $crate::__select!(@read [$($read)* ($pat, $future, $code)])
    };
    (@read $($rest:tt)*) => {
        ::core::compile_error!("a branch of `select!` is `pattern = future => code`, with a comma before the next")
    };

    // Gives each branch its place in `Out`.
    (@place [($($branch:tt)*) $($more:tt)*] [$($placed:tt)*] [$place:ident $var:ident $($free:ident)*]) => {
        $crate::__select!(@place [$($more)*] [$($placed)* ($place $var $($branch)*)] [$($free)*])
    };
    (@place [] [$($placed:tt)*] [$($free:ident $var:ident)*]) => {
        $crate::__select!(@expand [$($placed)*] [$($free)*])
    };
    (@place [$($more:tt)+] [$($placed:tt)*] []) => {
        ::core::compile_error!(
            "`select!` has at most 16 branches: put some of them into an `async` block with a `select!` of its own"
        )
    };

    (@expand [$(($place:ident $var:ident $pat:pat, $future:expr, $code:expr))+] [$($free:ident)*]) => {{
        let out: $crate::select::Out<$($crate::__select!(@any $place),)+ $($crate::__select!(@never $free)),*> = {
            $(let mut $var = ::core::pin::pin!(::core::future::IntoFuture::into_future($future));)+
            ::core::future::poll_fn(|task| {
                $(if let ::core::task::Poll::Ready(value) = $crate::select::poll(&mut $var, task) {
                    return ::core::task::Poll::Ready($crate::select::Out::$place(value));
                })+
                ::core::task::Poll::Pending
            })
            .await
        };
        // A `let` for each, so that a pattern which does not match every value is reported where it stands.
        match out {
            $($crate::select::Out::$place(value) => {
                let ($pat) = value;
                $code
            })+
        }
    }};
    (@any $place:ident) => { _ };
    (@never $free:ident) => { $crate::select::Never };
}

/// Waits for all of several futures, and gives their values as a tuple, in source order.
///
/// ```
/// use composer_sdk::join;
/// use std::future::ready;
///
/// # futures::executor::block_on(async {
/// let (receipt, stock) = join!(ready("paid"), ready(7));
/// assert_eq!((receipt, stock), ("paid", 7));
/// # });
/// ```
///
/// In a workflow, all calls are under way at once. Up to 16; for a list of equal ones use `futures::future::join_all`.
///
/// # Cancel safety
/// If the future around it is dropped, all branches are.
#[macro_export]
macro_rules! join {
    (@ $words:literal) => { () };
    ($($future:expr),+ $(,)?) => { $crate::__join!(@start branch $($future,)+) };
    ($($rest:tt)*) => { ::core::compile_error!("`join!` takes 1 to 16 futures, separated by commas") };
}

/// Waits for all of several futures that return a `Result`, or for the first error.
///
/// ```
/// use composer_sdk::try_join;
/// use std::future::ready;
///
/// # futures::executor::block_on(async {
/// let both: Result<_, String> = try_join!(ready(Ok(1)), ready(Ok::<_, String>("two")));
/// assert_eq!(both, Ok((1, "two")));
/// let first = try_join!(ready(Ok::<u8, &str>(1)), ready(Err::<u8, _>("no")));
/// assert_eq!(first, Err("no"));
/// # });
/// ```
///
/// The values come as a tuple in source order. At an error the other branches are dropped, which tells calls that are
/// under way to stop. All branches have one error type. Up to 16.
///
/// # Cancel safety
/// If the future around it is dropped, all branches are.
#[macro_export]
macro_rules! try_join {
    (@ $words:literal) => { () };
    ($($future:expr),+ $(,)?) => { $crate::__join!(@start try_branch $($future,)+) };
    ($($rest:tt)*) => { ::core::compile_error!("`try_join!` takes 1 to 16 futures, separated by commas") };
}

#[doc(hidden)]
#[macro_export]
macro_rules! __join {
    (@start $branch:ident $($future:expr,)+) => {
        $crate::__join!(@place $branch [$($future,)+] [] [A a B b C c D d E e F f G g H h I i J j K k L l M m N n O o P p])
    };
    (@place $branch:ident [$future:expr, $($more:expr,)*] [$($placed:tt)*] [$place:ident $var:ident $($free:ident)*]) => {
        $crate::__join!(@place $branch [$($more,)*] [$($placed)* ($var $future)] [$($free)*])
    };
    (@place branch [] [$(($var:ident $future:expr))+] [$($free:ident)*]) => {{
        $(let mut $var = ::core::pin::pin!($crate::select::branch($future));)+
        ::core::future::poll_fn(|task| {
            let mut all = true;
            $(all &= $crate::select::poll(&mut $var, task).is_ready();)+
            if all { ::core::task::Poll::Ready(()) } else { ::core::task::Poll::Pending }
        })
        .await;
        ($($crate::select::taken($var.as_mut().take_output()),)+)
    }};
    (@place try_branch [] [$(($var:ident $future:expr))+] [$($free:ident)*]) => {{
        $(let mut $var = ::core::pin::pin!($crate::select::try_branch($future));)+
        ::core::future::poll_fn(|task| {
            let mut all = true;
            $(match $crate::select::poll(&mut $var, task) {
                ::core::task::Poll::Ready(::core::result::Result::Ok(())) => {}
                ::core::task::Poll::Ready(::core::result::Result::Err(error)) => {
                    return ::core::task::Poll::Ready(::core::result::Result::Err(error));
                }
                ::core::task::Poll::Pending => all = false,
            })+
            if all { ::core::task::Poll::Ready(::core::result::Result::Ok(())) } else { ::core::task::Poll::Pending }
        })
        .await
        .map(|()| ($($crate::select::taken($var.as_mut().take_output()),)+))
    }};
    (@place $branch:ident [$($more:expr,)+] [$($placed:tt)*] []) => {
        ::core::compile_error!("at most 16 futures can be joined by name: use `futures::future::join_all` for a list")
    };
}

/// The value of a branch that is known to have one.
#[doc(hidden)]
pub fn taken<T>(value: Option<T>) -> T {
    value.expect("invariant: all branches were ready, and each value is taken once")
}

#[cfg(test)]
#[allow(clippy::let_unit_value, unused_parens)] // of `select!`, silent in other crates
mod tests {
    use std::{
        future::{Future, pending, poll_fn, ready},
        task::{Context, Poll, Waker},
    };

    use futures::executor::block_on;

    /// Counts polls, and is ready at the `n`th.
    fn after(n: u32, seen: &std::cell::RefCell<Vec<u32>>, id: u32) -> impl Future<Output = u32> {
        let mut polls = 0;
        poll_fn(move |task| {
            seen.borrow_mut().push(id);
            polls += 1;
            task.waker().wake_by_ref();
            if polls >= n { Poll::Ready(id) } else { Poll::Pending }
        })
    }

    #[test]
    fn of_two_ready_branches_the_earlier_wins_and_the_order_is_the_source_order() {
        let seen = std::cell::RefCell::default();
        let won = block_on(async {
            select! {
                n = after(3, &seen, 1) => n,
                n = after(2, &seen, 2) => n,
                n = after(2, &seen, 3) => n,
            }
        });
        assert_eq!((won, seen.into_inner()), (2, vec![1, 2, 3, 1, 2]));
    }

    #[test]
    fn arms_stand_outside_what_is_polled() {
        async fn run() -> Result<u32, String> {
            let mut rounds = 0;
            loop {
                select! {
                    n = ready(Ok::<u32, String>(1)) => {
                        rounds += n?;
                        if rounds < 3 { continue }
                        break;
                    }
                    () = pending() => return Ok(0),
                }
            }
            select! { _ = ready(()) => { Err("left by `?`".to_owned())? }, }
            Ok(rounds)
        }
        assert_eq!(block_on(run()), Err("left by `?`".to_owned()));
    }

    #[test]
    fn a_branch_by_reference_can_be_awaited_afterwards() {
        block_on(async {
            let seen = std::cell::RefCell::default();
            let mut slow = std::pin::pin!(after(5, &seen, 7));
            let quick = select! { _ = &mut slow => 0, n = ready(1) => n };
            assert_eq!((quick, slow.await), (1, 7));
        });
    }

    #[test]
    fn the_losers_are_gone_before_the_arm_runs() {
        struct Flag<'a>(&'a std::cell::Cell<bool>);
        impl Drop for Flag<'_> {
            fn drop(&mut self) {
                self.0.set(true);
            }
        }
        let dropped = std::cell::Cell::new(false);
        let flag = Flag(&dropped);
        block_on(async {
            let loser = async move {
                let _flag = flag;
                pending::<()>().await;
            };
            select! { () = loser => {}, () = ready(()) => assert!(dropped.get()) }
        });
    }

    #[test]
    fn patterns_blocks_and_commas_are_those_of_a_match() {
        struct Point {
            x: u32,
            y: u32,
        }
        block_on(async {
            let sum = select! {
                Point { x, y } = ready(Point { x: 1, y: 2 }) => { x + y }
                (a, b) = pending::<(u32, u32)>() => a + b,
                Ok(n) | Err(n) = pending::<Result<u32, u32>>() => n
            };
            assert_eq!(sum, 3);
        });
    }

    #[test]
    fn sixteen_branches_are_allowed() {
        let n: u32 = block_on(async {
            select! {
                () = pending() => 1, () = pending() => 2, () = pending() => 3, () = pending() => 4,
                () = pending() => 5, () = pending() => 6, () = pending() => 7, () = pending() => 8,
                () = pending() => 9, () = pending() => 10, () = pending() => 11, () = pending() => 12,
                () = pending() => 13, () = pending() => 14, () = pending() => 15, n = ready(16) => n,
            }
        });
        assert_eq!(n, 16);
        let all = block_on(async {
            join!(
                ready(1),
                ready(2),
                ready(3),
                ready(4),
                ready(5),
                ready(6),
                ready(7),
                ready(8),
                ready(9),
                ready(10),
                ready(11),
                ready(12),
                ready(13),
                ready(14),
                ready(15),
                ready(16)
            )
        });
        assert_eq!(all.15, 16);
    }

    #[test]
    fn join_polls_in_source_order_and_each_only_until_it_is_ready() {
        let seen = std::cell::RefCell::default();
        let values = block_on(async { join!(after(2, &seen, 1), after(1, &seen, 2), after(3, &seen, 3)) });
        assert_eq!((values, seen.into_inner()), ((1, 2, 3), vec![1, 2, 3, 1, 3, 3]));
    }

    #[test]
    fn try_join_ends_at_the_first_error_and_drops_the_rest() {
        let mut joined = Box::pin(async {
            try_join!(pending::<Result<u8, String>>(), async { Err::<u8, _>("no".to_owned()) })
        });
        let polled = joined.as_mut().poll(&mut Context::from_waker(Waker::noop()));
        assert_eq!(polled, Poll::Ready(Err("no".to_owned())));
        assert_eq!(block_on(async { try_join!(ready(Ok::<_, ()>(1)), ready(Ok("two")),) }), Ok((1, "two")));
    }
}
