"""A step on fake tensors: its peak of memory on a CPU, or on a GPU that is not there, with any build of torch.

Fake tensors have shapes and a device, and neither values nor memory (`torch._subclasses.fake_tensor`). torch's own
dispatch, autocast, autograd and optimizers run on them. What CUDA's kernels take beside their results is added by
rules, each with its source in torch. A CUDA build of torch needs no rules: `absent` runs it whole.

`hooks` builds and loads a small library, with which a CPU build takes the ways of CUDA. `cuda` has the rules of memory,
and `cuda_functions` the operators that a CPU build lacks and the functions of `torch.cuda`. `known_values` decides what
a value is that the host reads. `traced_step` traces a step.
"""
