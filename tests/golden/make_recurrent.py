"""Writes tests/data/ops_recurrent.safetensors and ops_ctc.safetensors: LSTM, GRU, RNN and CTC loss of PyTorch (see cases.py).
Read by tests/test_golden_recurrent.c and test_golden_ctc.c. Run: python3 tests/golden/make_recurrent.py (needs torch and safetensors).

Inputs of a recurrent case: x [B, T, F], then h0 (and c0), then each layer's parameters in PyTorch's order. The result is the
output and the last states as one row. Lengths are in the names; a sample of length 0 is what swoop makes of it: no output,
and its initial state."""

import torch
import torch.nn.functional as F
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

from cases import D, case, idx, out, r, save

torch.manual_seed(20261130)
CELLS = {"lstm": torch.nn.LSTM, "gru": torch.nn.GRU, "rnn": torch.nn.RNN}


def run(module, names, lengths):
    """A function of x, states and parameters."""
    lstm = isinstance(module, torch.nn.LSTM)

    def call(x, state, values):
        def forward(a, s):
            return torch.func.functional_call(module, dict(zip(names, values)), (a, s))

        if lengths is None:
            y, out = forward(x, state if lstm else state[0])
            return y, out if lstm else (out,)
        some = [i for i, n in enumerate(lengths) if n > 0]
        packed = pack_padded_sequence(x[some], torch.tensor([lengths[i] for i in some]), batch_first=True, enforce_sorted=False)
        states = tuple(s[:, some].contiguous() for s in state)
        y, out = forward(packed, states if lstm else states[0])
        y = pad_packed_sequence(y, batch_first=True, total_length=x.shape[1])[0]
        full = torch.zeros(x.shape[0], *y.shape[1:], dtype=D).index_put((torch.tensor(some),), y)
        order = [s.clone() for s in state]
        for s, o in zip(order, out if lstm else (out,)):
            for k, i in enumerate(some):
                s[:, i] = o[:, k]
        return full, tuple(order)

    def fn(x, *rest):
        n = 2 if lstm else 1
        y, out = call(x, rest[:n], rest[n:])
        return torch.cat([y.flatten()] + [v.flatten() for v in out])

    return fn


def recurrent(name, cell, b, t, f, h, layers=1, both=False, lengths=None, **kw):
    module = CELLS[cell](f, h, layers, batch_first=True, bidirectional=both, dtype=D, **kw)
    names = [n for n, _ in module.named_parameters()]
    values = [p.detach().to(torch.float32).to(D) * 1.5 for _, p in module.named_parameters()]
    rows, p = layers * (2 if both else 1), kw.get("proj_size") or h
    states = [r(rows, b, p)] + ([r(rows, b, h)] if cell == "lstm" else [])
    case(name, run(module, names, lengths), r(b, t, f), *states, *values, second=False)


recurrent("lstm", "lstm", 3, 4, 3, 5)
recurrent("lstm_lengths", "lstm", 4, 5, 2, 3, lengths=[5, 1, 3, 0])
recurrent("lstm_reverse", "lstm", 2, 3, 2, 3, both=True)
recurrent("lstm_both_lengths", "lstm", 4, 4, 2, 3, both=True, lengths=[2, 0, 4, 1])
recurrent("lstm_proj", "lstm", 3, 3, 2, 5, proj_size=2)
recurrent("lstm_proj_both_lengths", "lstm", 3, 4, 2, 4, both=True, proj_size=3, lengths=[1, 4, 2])
recurrent("lstm_two", "lstm", 2, 3, 3, 4, layers=2)
recurrent("lstm_one_step", "lstm", 2, 1, 3, 4)
recurrent("lstm_one_sample", "lstm", 1, 4, 3, 4)
recurrent("lstm_no_bias", "lstm", 2, 3, 3, 4, bias=False)
recurrent("gru", "gru", 3, 4, 3, 5)
recurrent("gru_lengths", "gru", 4, 5, 2, 3, lengths=[5, 1, 3, 0])
recurrent("gru_two_both_lengths", "gru", 3, 4, 2, 3, layers=2, both=True, lengths=[1, 4, 3])
recurrent("gru_one_step", "gru", 1, 1, 2, 3)
recurrent("rnn", "rnn", 3, 4, 3, 5)
recurrent("rnn_relu_both", "rnn", 2, 4, 3, 4, both=True, nonlinearity="relu")
recurrent("rnn_lengths", "rnn", 4, 3, 2, 3, lengths=[0, 3, 1, 2])
save("ops_recurrent")
out.clear()


def ctc(name, logits, targets, inputs, lengths, **kw):
    def fn(x, t, n, s):
        return F.ctc_loss(x.log_softmax(2).transpose(0, 1), t, n, s, **kw)

    case(name, fn, logits, idx(targets), idx(inputs), idx(lengths), second=False)


ctc("ctc_none", r(4, 6, 5), [[1, 2, 3], [4, 4, 1], [2, 0, 0], [3, 3, 3]], [6, 5, 4, 6], [3, 2, 1, 3], reduction="none")
ctc("ctc_mean", r(3, 5, 4), [[1, 2], [3, 3], [2, 0]], [5, 3, 4], [2, 2, 1])
ctc("ctc_sum", r(3, 5, 4), [[1, 2], [3, 3], [2, 0]], [5, 3, 4], [2, 2, 1], reduction="sum")
ctc("ctc_blank", r(2, 5, 4), [[0, 2], [1, 1]], [5, 5], [2, 2], blank=3, reduction="none")
ctc("ctc_no_labels", r(3, 4, 3), [[1, 2], [1, 1], [2, 1]], [4, 4, 1], [0, 2, 1])  # the mean divides by at least 1
ctc("ctc_impossible", r(3, 4, 3), [[1, 1, 1], [1, 2, 1], [2, 2, 0]], [4, 4, 2], [3, 3, 2], zero_infinity=True)
ctc("ctc_long", r(2, 30, 6), [[1, 2, 2, 5, 4, 4, 4, 1], [3, 3, 3, 3, 3, 3, 3, 0]], [30, 25], [8, 7], reduction="none")
save("ops_ctc")
