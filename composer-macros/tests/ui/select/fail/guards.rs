async fn f(on: bool) {
    composer_sdk::select! {
        () = std::future::ready(()), if on => {}
    }
    composer_sdk::select! {
        n if n > 1 = std::future::ready(1) => {}
    }
}

fn main() {}
