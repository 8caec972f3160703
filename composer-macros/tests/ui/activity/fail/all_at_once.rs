use composer_sdk::activity;

#[activity(timeuot = "1s")]
unsafe fn charge<T>(amount: &mut T, tags: Vec<&str>) -> u32 {
    let _ = (amount, tags);
    1
}

fn main() {}
