use composer_sdk::activity;

#[activity]
async unsafe fn is_unsafe() -> u8 {
    1
}

#[activity]
async extern "C" fn is_extern() -> u8 {
    1
}

#[activity(blocking)]
const fn is_const() -> u8 {
    1
}

fn main() {
    drop(is_unsafe());
    drop(is_extern());
    drop(is_const());
}
