//! The `#[workflow]` and `#[activity]` attributes.
