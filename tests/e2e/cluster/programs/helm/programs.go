//go:build tools

// Package programs names what is built here.
package programs

import _ "helm.sh/helm/v3/cmd/helm"
