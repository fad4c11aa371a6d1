//go:build tools

// Package programs names what is built here.
package programs

import _ "sigs.k8s.io/cri-tools/cmd/crictl"
