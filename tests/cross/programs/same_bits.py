"""The same job with virtual workers from Python and from R, on other numbers of workers: the same bits."""

from digits_job import train, train_in_r

if __name__ == "__main__":
    python = train(1, 4)
    weights, history = train_in_r(3, 4)
    for mine, theirs in zip(python.model.get_weights(), weights, strict=True):
        assert mine.tobytes() == theirs.tobytes()
    assert history == python.history
    print("same bits")
