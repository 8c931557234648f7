package main

import (
	"github.com/urfave/cli/v2"

	"windrow/bench"
	"windrow/checkpoint"
	"windrow/engine"
	"windrow/synthetic"
)

// benchDry counts what forwards on a GPU would read, write and compute.
func benchDry(c *cli.Context, machine engine.Options, p *bench.Plan) error {
	if machine.Backend != engine.Metal {
		return usagef("--dry counts for --backend metal alone")
	}
	r := bench.NewDryReport()
	sources, err := drySources(c)
	if err != nil {
		return err
	}
	for _, s := range sources {
		if err := r.Add(c.Context, p, machine, s.name, s.source); err != nil {
			return err
		}
	}
	if c.Bool("json") {
		return writeJSON(c.App.Writer, r)
	}
	return r.Table(c.App.Writer)
}

type drySource struct {
	name   string
	source checkpoint.Source
}

// drySources are the shapes, without weights, or the model.
func drySources(c *cli.Context) (list []drySource, err error) {
	if shapes := c.StringSlice("shape"); len(shapes) > 0 {
		if c.String("model") != "" {
			return nil, usagef("--shape and --model: want one of them")
		}
		for _, name := range shapes {
			config, dtype, err := parseShape(c, name)
			if err != nil {
				return nil, err
			}
			list = append(list, drySource{name, synthetic.EmptySource(config, dtype)})
		}
		return list, nil
	}
	if c.IsSet("dtype") {
		return nil, usagef("--dtype: a model has its own; it goes with --shape")
	}
	path := c.String("model")
	source, err := engine.OpenCheckpoint(c.Context, path)
	if err != nil {
		return nil, err
	}
	return []drySource{{engine.ModelName(path), source}}, nil
}
