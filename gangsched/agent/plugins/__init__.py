"""The device plugins that hand kubelet the planned devices."""
