use std::future::ready;

async fn f() {
    composer_sdk::select! {
        _ = ready(1) => {} _ = ready(2) => {} _ = ready(3) => {} _ = ready(4) => {} _ = ready(5) => {}
        _ = ready(6) => {} _ = ready(7) => {} _ = ready(8) => {} _ = ready(9) => {} _ = ready(10) => {}
        _ = ready(11) => {} _ = ready(12) => {} _ = ready(13) => {} _ = ready(14) => {} _ = ready(15) => {}
        _ = ready(16) => {} _ = ready(17) => {}
    }
    composer_sdk::join!(
        ready(1), ready(2), ready(3), ready(4), ready(5), ready(6), ready(7), ready(8), ready(9), ready(10),
        ready(11), ready(12), ready(13), ready(14), ready(15), ready(16), ready(17)
    );
}

fn main() {}
