"""Steps of variables, in BP4 and BP5, appended to and read back."""

import os
import adios2
import numpy as np

for engine in ("BP4", "BP5"):
    name = f"{engine.lower()}.bp"
    for mode, steps in (("w", range(3)), ("a", range(3, 5))):
        ad = adios2.Adios()
        io = ad.declare_io("out")
        io.set_engine(engine)
        with adios2.Stream(io, name, mode) as s:
            for step in steps:
                s.begin_step()
                a = np.random.default_rng(step).random((100, 80))
                s.write("a", a, a.shape, [0, 0], a.shape)
                s.write("step", step)
                s.end_step()
    with adios2.FileReader(name) as f:
        print(
            engine,
            f.num_steps(),
            f.read("step", step_selection=[0, 5]),
            sorted(f.available_variables()),
        )
        print(f.read("a", step_selection=[0, 5]).sum())
    # What else there is says who wrote it when.
    for other in os.listdir(name):
        if not other.startswith("data."):
            os.remove(os.path.join(name, other))
