//! What the black-box tests run: see [`kit`]. The tests themselves are in `it/`.

pub mod kit;
