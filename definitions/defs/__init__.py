"""The assets, jobs, schedules and sensors of the demo."""
