"""Training: the embedded pair from text, draft heads for trees (EAGLE, HASS, TALF), and the neural selector.

    python -m decoding.training.embedded CORPUS_DIR --minutes N
    python -m decoding.training.head --loss talf
    python -m decoding.training.selector --verifier specinfer

Every training writes one `run_folder.Training`, which the page reads while another process writes it.
"""
