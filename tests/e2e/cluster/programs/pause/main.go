// The process that holds a pod's network: it waits, and buries orphans where the pod shares its process namespace.
package main

import (
	"os"
	"os/signal"
	"syscall"
)

func main() {
	signals := make(chan os.Signal, 1)
	signal.Notify(signals, syscall.SIGINT, syscall.SIGTERM, syscall.SIGCHLD)
	for got := range signals {
		if got != syscall.SIGCHLD {
			return
		}
		for {
			if buried, _ := syscall.Wait4(-1, nil, syscall.WNOHANG, nil); buried <= 0 {
				break
			}
		}
	}
}
