package fleet

import (
	"net/url"
	"path/filepath"
	"strconv"

	"github.com/holdfast-io/holdfast/pkg/messaging/embednats"
)

// NATSURL is where the members reach NATS; it stays the same over StopNATS and StartNATS.
func (f *Fleet) NATSURL() string { return f.nats.URL() }

// StopNATS stops the NATS server; its data stay.
func (f *Fleet) StopNATS() { f.nats.Stop() }

// StartNATS starts the stopped NATS server again on the same port, with the data that are there
// now. Not safe for concurrent use.
func (f *Fleet) StartNATS() error {
	address, err := url.Parse(f.nats.URL())
	if err != nil {
		return err
	}
	port, err := strconv.Atoi(address.Port())
	if err != nil {
		return err
	}
	server, err := embednats.Start(embednats.Config{Dir: f.natsDir(), Host: address.Hostname(), Port: port})
	if err != nil {
		return err
	}
	f.nats = server
	return nil
}

func (f *Fleet) natsDir() string { return filepath.Join(f.config.Dir, "nats") }
