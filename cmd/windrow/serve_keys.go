package main

import (
	"fmt"
	"os"
	"runtime"

	"github.com/urfave/cli/v2"

	"windrow/server"
)

// readKeys reads --api-key and --api-key-file; nil: there are none.
func readKeys(c *cli.Context) (*server.Keys, error) {
	given, path := c.StringSlice("api-key"), c.String("api-key-file")
	if len(given) == 0 && path == "" {
		return nil, nil
	}
	keys := new(server.Keys)
	if path != "" {
		if err := readKeyFile(keys, path); err != nil {
			return nil, err
		}
	}
	for i, secret := range given {
		if err := keys.Add(fmt.Sprintf("key-%d", i+1), secret); err != nil {
			return nil, usagef("--api-key: %v", err)
		}
	}
	return keys, nil
}

func readKeyFile(keys *server.Keys, path string) error {
	f, err := os.Open(path)
	if err != nil {
		return fmt.Errorf("--api-key-file: %w", err)
	}
	defer f.Close()
	info, err := f.Stat()
	switch {
	case err != nil:
		return fmt.Errorf("--api-key-file: %w", err)
	case !info.Mode().IsRegular():
		return fmt.Errorf("--api-key-file: %s is no file", path)
	case runtime.GOOS != "windows" && info.Mode()&0o077 != 0:
		return fmt.Errorf("--api-key-file: others can read %s: chmod 600 %s", path, path)
	}
	if err := keys.Read(f); err != nil {
		return fmt.Errorf("--api-key-file: %s: %w", path, err)
	}
	if keys.Len() == 0 {
		return fmt.Errorf("--api-key-file: %s has no keys", path)
	}
	return nil
}

// readCertificate reads --tls-cert and --tls-key; nil: there are none.
func readCertificate(c *cli.Context) (*server.Certificate, error) {
	cert, key := c.String("tls-cert"), c.String("tls-key")
	switch {
	case cert == "" && key == "":
		return nil, nil
	case cert == "" || key == "":
		return nil, usagef("--tls-cert and --tls-key: want both")
	}
	pair, err := server.LoadCertificate(cert, key)
	if err != nil {
		return nil, fmt.Errorf("--tls-cert: %w", err)
	}
	return pair, nil
}
