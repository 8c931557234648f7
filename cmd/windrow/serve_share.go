package main

import (
	"github.com/urfave/cli/v2"

	"windrow/hub"
	"windrow/server"
)

// readShare reads --share; nil: nothing is shared.
func readShare(c *cli.Context, keys *server.Keys) (*hub.Share, error) {
	switch {
	case !c.Bool("share") && c.Bool("share-gated"):
		return nil, usagef("--share-gated: want --share, too")
	case !c.Bool("share"):
		return nil, nil
	case keys == nil:
		return nil, usagef("--share: gives models to those who bring a key: want --api-key-file or --api-key")
	}
	cache, err := openCache()
	if err != nil {
		return nil, err
	}
	return hub.NewShare(cache, c.Bool("share-gated")), nil
}
