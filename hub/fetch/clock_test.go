package fetch

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"io"
	"log"
	"math/big"
	"net"
	"net/http"
	"net/http/httptest"
	"sync/atomic"
	"testing"
	"time"

	"windrow/internal/testhelp"
)

// TestWrongClock: to a machine whose clock is in 1970 no certificate is valid yet, and after
// a battery's end all of them are no more: that is one line, which asks for the clock, at the
// first try.
func TestWrongClock(t *testing.T) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	const years = 365 * 24 * time.Hour
	for name, from := range map[string]time.Time{"not valid yet": time.Now().Add(56 * years), "valid no more": time.Now().Add(-56 * years)} {
		template := &x509.Certificate{SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "hub"}, NotBefore: from, NotAfter: from.Add(years),
			IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}, IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign | x509.KeyUsageDigitalSignature}
		der, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
		if err != nil {
			t.Fatal(err)
		}
		certificate, err := x509.ParseCertificate(der)
		if err != nil {
			t.Fatal(err)
		}
		var tries atomic.Int64
		server := httptest.NewUnstartedServer(http.NotFoundHandler())
		server.TLS = &tls.Config{Certificates: []tls.Certificate{{Certificate: [][]byte{der}, PrivateKey: key}}, GetConfigForClient: func(*tls.ClientHelloInfo) (*tls.Config, error) {
			tries.Add(1)
			return nil, nil
		}}
		server.Config.ErrorLog = log.New(io.Discard, "", 0)
		server.StartTLS()
		s := newScene(t, true)
		s.o.Endpoint = server.URL
		s.o.roots = x509.NewCertPool()
		s.o.roots.AddCert(certificate)
		_, err = s.pull("hf:me/tiny")
		testhelp.OneLine(t, name, err, "is this machine's clock right? It says "+time.Now().Format(time.DateOnly))
		if tries.Load() != 1 {
			t.Errorf("%s: %d tries", name, tries.Load())
		}
		server.Close()
	}
}
